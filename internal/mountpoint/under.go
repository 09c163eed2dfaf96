package mountpoint

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// OpenAgain opens the shared directory of a mount by its path.
func OpenAgain(source, mountpoint string) (*os.File, error) {
	if source == mountpoint && IsDead(mountpoint) {
		return openUnder(mountpoint)
	}
	if source == mountpoint {
		return nil, fmt.Errorf("%s is not the dead mount any more", mountpoint)
	}
	return os.Open(source)
}

// IsDead reports whether the mount at path is that of a FUSE daemon that has
// ended.
//
// What stat(2) says may come from the kernel's cache for a moment after the
// daemon has ended.
func IsDead(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
	return errors.Is(err, unix.ENOTCONN)
}

// openUnder opens the directory that the topmost mount at path covers. It is
// done in a mount namespace of its own, where that mount is taken away: for
// everybody else it stays in its place.
func openUnder(path string) (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	ch := make(chan result)
	go func() {
		// The thread ends with this goroutine, since it is not unlocked, and
		// with it the namespace. The file stays open.
		runtime.LockOSThread()
		f, err := func() (*os.File, error) {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return nil, fmt.Errorf("unshare: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return nil, fmt.Errorf("make mounts private: %w", err)
			}
			if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				return nil, fmt.Errorf("unmount: %w", err)
			}
			return os.Open(path)
		}()
		ch <- result{f, err}
	}()
	r := <-ch
	if r.err != nil {
		return nil, fmt.Errorf("look below the mount at %s: %w", path, r.err)
	}
	return r.f, nil
}

// Alive reports whether a directory that is open can be used still: it was
// not removed, and its file system answers.
func Alive(root *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return fmt.Errorf("it was removed: %w", unix.ENOENT)
	}
	fd, err := unix.Openat(int(root.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
