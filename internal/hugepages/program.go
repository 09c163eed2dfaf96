package hugepages

import (
	"debug/elf"
	"errors"
	"unsafe"

	"github.com/dmxfs/dmxfs/internal/process"
)

// pageSize is that of a huge page on amd64, in bytes.
const pageSize = 2 << 20

// span is memory: addresses of this process.
type span struct{ from, to uintptr }

func (s span) size() int {
	if s.to <= s.from {
		return 0
	}
	return int(s.to - s.from)
}

// whole are the huge pages that lie in s as a whole.
func (s span) whole() span {
	return span{up(s.from), s.to &^ (pageSize - 1)}
}

func up(at uintptr) uintptr { return (at + pageSize - 1) &^ (pageSize - 1) }

// part is a span of a program as its file has it, from an offset on.
type part struct {
	span
	offset int64
}

// program is where the parts of a program lie, in whole huge pages.
type program struct {
	code part
	// data is read-only: constants, and what types are like. What follows in the same
	// mapping is left out, since it is as large again and seldom used: the tables by which
	// the runtime reads stacks.
	data part
	// variables are those that have no value in the file.
	variables span
}

// layout reads where the parts of an executable lie, which is where they are in memory.
func layout(f *elf.File) (program, error) {
	if f.Type != elf.ET_EXEC {
		return program{}, errors.New("the program is position-independent")
	}
	var p program
	constants := f.Section(".rodata")
	for _, s := range f.Progs {
		if s.Type != elf.PT_LOAD {
			continue
		}
		file := span{uintptr(s.Vaddr), uintptr(s.Vaddr + s.Filesz)}
		switch {
		case s.Flags&elf.PF_X != 0:
			p.code = partOf(s, file.whole())
		case s.Flags&elf.PF_W != 0:
			p.variables = span{file.to, uintptr(s.Vaddr + s.Memsz)}.whole()
		case constants != nil && s.Vaddr <= constants.Addr && constants.Addr < s.Vaddr+s.Filesz:
			p.data = partOf(s, file.whole())
			p.data.to = min(p.data.to, up(uintptr(constants.Addr+constants.Size)))
		}
	}
	return p, nil
}

func partOf(p *elf.Prog, s span) part {
	return part{s, int64(p.Off) + int64(s.from) - int64(p.Vaddr)}
}

// heapProbe is on the heap.
var heapProbe *[1 << 10]byte

// maxHeap is how much of the heap is merged, in bytes: a daemon that has rested needs little,
// and one that has many locks as much again would be in memory for nothing.
const maxHeap = 8 << 20

// heap is where the first part of the heap lies, in whole huge pages: where there is room
// the runtime goes on using its lowest addresses.
func heap() (span, error) {
	heapProbe = new([1 << 10]byte)
	all, err := process.Mappings()
	if err != nil {
		return span{}, err
	}
	at := uintptr(unsafe.Pointer(heapProbe))
	for _, m := range all {
		if m.From <= at && at < m.To {
			s := span{m.From, m.To}.whole()
			s.to = min(s.to, s.from+maxHeap)
			return s, nil
		}
	}
	return span{}, errors.New("the heap is in no mapping")
}
