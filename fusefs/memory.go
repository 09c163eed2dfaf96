package fusefs

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory reads what the kernel has in memory of files on the storage without a
// wait, and knows whether the storage's client can tell that (RWF_NOWAIT of
// preadv2(2)).
type memory struct{ cannotTell atomic.Bool }

// pread fills b from off as far as the file goes, and calls blocks before it
// waits for the storage. With direct fd passes by the kernel's memory.
func (m *memory) pread(fd int, b []byte, off int64, direct bool, blocks func()) (n int, err error) {
	if !direct && !m.cannotTell.Load() {
		var whole bool
		if n, whole, err = preadNowait(fd, b, off); whole {
			return n, nil
		}
		if err == unix.EOPNOTSUPP {
			m.cannotTell.Store(true)
		}
	}
	blocks()
	more, err := pread(fd, b[n:], off+int64(n))
	return n + more, err
}

// preadNowait fills b from off as pread does, with what is in memory. It is whole
// if that is all that pread would read. The error is EAGAIN if more has to come
// from the storage, and EOPNOTSUPP if the file system cannot tell.
func preadNowait(fd int, b []byte, off int64) (n int, whole bool, err error) {
	for n < len(b) {
		iov := unix.Iovec{Base: &b[n]}
		iov.SetLen(len(b) - n)
		m, _, e := unix.Syscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1,
			uintptr(off+int64(n)), 0, unix.RWF_NOWAIT) // the upper half of the offset is for 32 bits
		switch {
		case e == unix.EINTR:
			continue
		case e != 0:
			return n, false, e
		case m == 0:
			return n, true, nil
		}
		n += int(m)
	}
	return n, true, nil
}
