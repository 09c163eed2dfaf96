package hugepages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/process"
)

var (
	errNone  = errors.New("the kernel gives no huge pages")
	errMoved = errors.New("it is in huge pages already")
)

// move puts p, which is mapped and cannot be written, into huge pages, at the same addresses.
// Threads that run there go on.
func move(ctx context.Context, file io.ReaderAt, p part) error {
	if p.size() == 0 {
		return nil
	}
	mode, err := unchanged(p.span)
	if errors.Is(err, errMoved) {
		return nil
	}
	if err != nil {
		return err
	}
	to, err := reserve(p.size())
	if err != nil {
		return err
	}
	if err = fill(ctx, to, file, p, mode); err == nil {
		// Who runs in p meanwhile, or reads there, waits in the kernel until it is back. It
		// is taken away first; that it could not be put back is not known to happen, since
		// nothing needs to be made for that, and would be the end of the program.
		_, _, errno := unix.Syscall6(unix.SYS_MREMAP, uintptr(to), uintptr(p.size()), uintptr(p.size()),
			unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, p.from, 0)
		if errno == 0 {
			return nil
		}
		err = os.NewSyscallError("mremap", errno)
	}
	_ = unix.MunmapPtr(to, uintptr(p.size()))
	return err
}

// unchanged tells how s may be used, or why it cannot be moved. Changed are its pages where a
// debugger or a probe of the kernel has set its traps, which only the kernel knows and only in
// a mapping of the file: a copy of one would end the program.
func unchanged(s span) (mode int, err error) {
	all, err := process.Mappings()
	if err != nil {
		return 0, err
	}
	for _, m := range all {
		if m.From > s.from || s.to > m.To {
			continue
		}
		switch {
		case m.File == "" && m.Huge > 0:
			return 0, errMoved
		case m.File == "" || !strings.HasPrefix(m.Mode, "r") || m.Mode[1] == 'w' || m.Mode[3] != 'p':
			return 0, fmt.Errorf("it is mapped as %q of %q", m.Mode, m.File)
		case m.Own > 0:
			return 0, errors.New("it is not as in its file: somebody traces the program")
		case m.Mode[2] == 'x':
			return unix.PROT_READ | unix.PROT_EXEC, nil
		}
		return unix.PROT_READ, nil
	}
	return 0, errors.New("it is not in one mapping")
}

// reserve makes room for size bytes, in whole huge pages.
func reserve(size int) (unsafe.Pointer, error) {
	// What the kernel gives begins anywhere: what is before and behind goes back.
	all, err := unix.MmapPtr(-1, 0, nil, uintptr(size)+pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	before := up(uintptr(all)) - uintptr(all)
	to := unsafe.Add(all, before)
	if before > 0 {
		err = unix.MunmapPtr(all, before)
	}
	if behind := pageSize - before; err == nil && behind > 0 {
		err = unix.MunmapPtr(unsafe.Add(to, size), behind)
	}
	if err != nil {
		return nil, os.NewSyscallError("munmap", err)
	}
	return to, nil
}

// fill copies p from its file to where there is room for it, in huge pages, and gives it its
// mode. The file has no traps, which could be set in memory at any time.
func fill(ctx context.Context, to unsafe.Pointer, file io.ReaderAt, p part, mode int) error {
	room := unsafe.Slice((*byte)(to), p.size())
	if err := unix.Madvise(room, unix.MADV_HUGEPAGE); err != nil {
		return os.NewSyscallError("madvise", err)
	}
	for at := 0; at < len(room); at += pageSize {
		if _, err := file.ReadAt(room[at:at+pageSize], p.offset+int64(at)); err != nil {
			return err
		}
		if err := rest(ctx); err != nil {
			return err
		}
	}
	if err := unix.Mprotect(room, mode); err != nil {
		return os.NewSyscallError("mprotect", err)
	}
	all, err := process.Mappings()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.From == uintptr(to) && m.Huge > 0 {
			return nil
		}
	}
	return errNone
}
