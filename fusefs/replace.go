package fusefs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// moveMountBeneath is MOVE_MOUNT_BENEATH of move_mount(2), Linux 6.5.
const moveMountBeneath = 0x200

// mountInPlaceOf mounts at path and takes away the mount that is there, a dead
// one, in one step: there is no moment in which programs see what is below
// both, and could write to it without locks.
func mountInPlaceOf(path string, o *Options) (dev int, err error) {
	temp, err := os.MkdirTemp("", "dmxfs-mount-")
	if err != nil {
		return -1, err
	}
	defer os.Remove(temp)
	dev, err = mountDirectly(temp, o)
	if err != nil {
		return -1, err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, temp, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err2 := unix.Unmount(temp, unix.MNT_DETACH); err == nil {
		err = err2
	}
	if err != nil {
		closeFD(tree)
		unix.Close(dev)
		return -1, fmt.Errorf("prepare the mount: %w", err)
	}
	defer unix.Close(tree)
	err = unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH|moveMountBeneath)
	if errors.Is(err, unix.EINVAL) {
		// A kernel that cannot put it below puts it above; the dead one shows
		// again, and fails, when the new one is taken away.
		err = unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	} else if err == nil {
		err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if err != nil {
		unix.Close(dev)
		return -1, fmt.Errorf("put the mount in the place of the dead one: %w", err)
	}
	return dev, nil
}
