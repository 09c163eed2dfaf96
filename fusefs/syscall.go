package fusefs

import (
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls that golang.org/x/sys/unix has not, or has only for all threads.

func itoa(n int) string { return strconv.Itoa(n) }

func rawSetgroups(gids []uint32, first *uint32) error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(gids)), uintptr(unsafe.Pointer(first)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// pwrite writes all of b at off, or at the end of the file if app is set,
// which is then found and written in one step. It returns how much was written
// before an error.
func pwrite(fd int, b []byte, off int64, app bool) (int, error) {
	n := 0
	for n < len(b) {
		var m int
		err := retryEINTR(func() (err error) {
			if app {
				m, err = unix.Pwritev2(fd, [][]byte{b[n:]}, off+int64(n), unix.RWF_APPEND)
			} else {
				m, err = unix.Pwrite(fd, b[n:], off+int64(n))
			}
			return err
		})
		if err != nil {
			return n, err
		}
		if m == 0 {
			return n, unix.EIO
		}
		n += m
	}
	return n, nil
}

// pread fills b from off as far as the file goes.
func pread(fd int, b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) {
		var m int
		err := retryEINTR(func() (err error) {
			m, err = unix.Pread(fd, b[n:], off+int64(n))
			return err
		})
		if err != nil {
			return n, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return n, nil
}
