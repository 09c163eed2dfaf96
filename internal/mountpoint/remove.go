package mountpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// Abort cuts the connection of the mount at a path, which stays in its
// place and fails from then on.
func Abort(point string) error {
	all, err := mountinfo.Read()
	if err != nil {
		return err
	}
	if m, ok := mountinfo.At(all, point); !ok || m.Type != Type {
		return nil
	}
	// umount(2) with MNT_FORCE cuts the connection whether or not it can take
	// the mount away. What is open keeps it from that.
	fd, err := unix.Open(point, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cut off the mount at %s: %w", point, err)
	}
	defer unix.Close(fd)
	if err := unix.Unmount(point, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("cut off the mount at %s: %w (echo 1 > /sys/fs/fuse/connections/NUMBER/abort does it too)", point, err)
	}
	return nil
}

// Remove takes away a mount that no daemon serves.
func Remove(point string, lazy bool) error {
	if all, err := mountinfo.Read(); err == nil {
		if m, ok := mountinfo.At(all, point); !ok || m.Type != Type {
			return nil // the daemon that was about to serve it has taken it away
		}
	}
	flags := 0
	if lazy {
		flags = unix.MNT_DETACH
	}
	if os.Geteuid() != 0 {
		// Whose mount it is, fusermount3 knows.
		args := []string{"-u", "--", point}
		if lazy {
			args = append([]string{"-z"}, args...)
		}
		if out, err := exec.Command("fusermount3", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("unmount %s: %w: %s", point, err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if err := unix.Unmount(point, flags); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return exitcode.With(exitcode.Busy, fmt.Errorf("%s is in use: end the programs that use it (fuser -m %s), or give --lazy", point, point))
		}
		return fmt.Errorf("unmount %s: %w", point, err)
	}
	return nil
}
