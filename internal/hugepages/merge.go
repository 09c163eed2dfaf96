package hugepages

import (
	"context"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// merge makes huge pages of those in s of which enough bytes are in memory already. What of
// a page is not would be for nothing: the others stay as they are.
func merge(ctx context.Context, s span, enough int) error {
	failed, first := 0, error(nil)
	for at := s.from; at < s.to; at += pageSize {
		in, err := resident(at)
		if err != nil {
			return err
		}
		if in < enough {
			continue
		}
		errno := unix.EAGAIN
		for try := 0; errno == unix.EAGAIN && try < tries; try++ {
			if err := rest(ctx); err != nil {
				return err
			}
			_, _, errno = unix.Syscall(unix.SYS_MADVISE, at, pageSize, unix.MADV_COLLAPSE)
		}
		if errno != 0 { // EINVAL: Linux before 6.1
			if failed++; first == nil {
				first = os.NewSyscallError("madvise", errno)
			}
		}
	}
	if failed > 1 {
		return fmt.Errorf("%d pages: %w", failed, first)
	}
	return first
}

// tries are for one huge page, of which the kernel has some small ones in use for a moment.
const tries = 5

// resident tells how much of the huge page at an address is in memory, in bytes.
func resident(at uintptr) (int, error) {
	small := os.Getpagesize()
	in := make([]byte, pageSize/small)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, at, pageSize, uintptr(unsafe.Pointer(&in[0]))); errno != 0 {
		return 0, os.NewSyscallError("mincore", errno)
	}
	n := 0
	for _, b := range in {
		n += int(b&1) * small
	}
	return n, nil
}
