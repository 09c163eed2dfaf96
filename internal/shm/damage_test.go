package shm

import (
	"errors"
	"math/rand/v2"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forge is memory with these bytes, sealed as Create does.
func forge(tb testing.TB, b []byte, size int) (fd int) {
	tb.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, int64(size))
	}
	if err == nil {
		_, err = unix.Pwrite(fd, b[:min(len(b), size)], 0)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return fd
}

// example are tables after some hundred steps.
func example(tb testing.TB, steps int) (*Tables, *model) {
	t, m := create(tb, small), newModel()
	for rnd := rand.New(rand.NewPCG(3, 3)); m.serial < uint64(steps); {
		m.step(t, rnd)
	}
	return t, m
}

// inUse are the words of the head, and of the slots that were ever used: all of the
// records, and the first ones of the texts.
func inUse(t *Tables) (at []int) {
	add := func(from, n int) {
		for i := range n {
			at = append(at, from+i)
		}
	}
	add(0, headWhy)
	for i := range t.tables {
		last := uint32(0)
		for j := range t.tables[i].place.top {
			if t.w[t.tables[i].at(j)+1] != 0 {
				last = j
			}
		}
		add(t.tables[i].place.at, t.tables[i].at(last+1)-t.tables[i].place.at)
	}
	for _, c := range t.texts.class {
		for j := range c.top {
			if c.all[j] != nil {
				add(c.at+int(j)*c.stride, 6)
			}
		}
	}
	return at
}

// A word that is another one, wherever, is found, unless nothing depends on it.
func TestEachWordFlipped(t *testing.T) {
	tables, m := example(t, 150)
	found, idle := 0, 0
	for _, at := range inUse(tables) {
		was := tables.w[at]
		for _, flip := range []uint64{1 << (at % 64), was} {
			if flip == 0 {
				continue
			}
			tables.w[at] = was ^ flip
			n, err := Open(tables.FD(), 5, small)
			tables.w[at] = was
			switch {
			case err == nil:
				if differs := m.differs(n); differs != nil {
					t.Fatalf("word %d, %x: nobody has noticed: %v", at, flip, differs)
				}
				idle++
				unix.Munmap(n.mem)
			case !errors.Is(err, ErrDamaged) && !(at == headVersion && errors.Is(err, ErrVersion)) && !(at == headFull && errors.Is(err, ErrFull)):
				t.Fatalf("word %d: %v", at, err)
			default:
				found++
			}
		}
	}
	if t.Logf("%d were found, on %d nothing depends", found, idle); found < 500 {
		t.Errorf("only %d were found", found)
	}
}

// Memory that is too short, can be made shorter, or has holes is none.
func TestAPartOfIt(t *testing.T) {
	tables, _ := example(t, 150)
	for _, size := range []int{0, 8, page - 8, page, 2 * page, len(tables.mem) - page, len(tables.mem) - 8, len(tables.mem) + page} {
		fd := forge(t, tables.mem, size)
		if _, err := Open(fd, 5, small); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d of %d bytes: %v", size, len(tables.mem), err)
		}
		unix.Close(fd)
	}
	fd := forge(t, tables.mem[:page], len(tables.mem))
	defer unix.Close(fd)
	if _, err := Open(fd, 5, small); !errors.Is(err, ErrDamaged) {
		t.Errorf("a head alone: %v", err)
	}
	open, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(open)
	if _, err := unix.Pwrite(open, tables.mem, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(open, 5, small); !errors.Is(err, ErrDamaged) {
		t.Errorf("memory that is not sealed: %v", err)
	}
}

// A record at another place, or a text that was written over, is damage.
func TestRecordsElsewhere(t *testing.T) {
	tables := create(t, small)
	ref, _ := tables.Text("a text")
	words := []uint64{ref, 0, 1, 2, 3, 4, 5}
	a, _ := tables.Put(0, words)
	b, _ := tables.Put(0, words)
	tb := &tables.tables[0]
	from, to := tables.w[tb.at(a-1):][:tb.stride], tables.w[tb.at(b-1):][:tb.stride]
	kept := append([]uint64(nil), to...)
	copy(to, from)
	to[1]++ // so that it is not the very same
	if _, err := Open(tables.FD(), 5, small); !errors.Is(err, ErrDamaged) {
		t.Errorf("a record at another place: %v", err)
	}
	copy(to, kept)
	c := &tables.texts.class[0]
	_, i, _ := splitRef(ref)
	tables.texts.serial++
	tables.write(c, i, "b text")
	if _, err := Open(tables.FD(), 5, small); !errors.Is(err, ErrDamaged) {
		t.Errorf("a text that was written over: %v", err)
	}
}

// FuzzOpen: whatever is in the memory, it ends in an error or in records that can be
// read, and in little memory.
func FuzzOpen(f *testing.F) {
	tiny := Form{Texts: 2, Tables: []Spec{{Words: 2, Texts: 1, Max: 4}}}
	tables := create(f, tiny)
	ref, _ := tables.Text("text")
	tables.Put(0, []uint64{ref, 1})
	f.Add(uint32(0), uint64(0), uint32(0), uint64(0))
	f.Add(uint32(headTops), uint64(3), uint32(headSize), uint64(1))
	whole := append([]uint64(nil), tables.w...)
	f.Fuzz(func(t *testing.T, at uint32, x uint64, at2 uint32, y uint64) {
		copy(tables.w, whole)
		tables.w[int(at)%len(whole)] ^= x
		tables.w[int(at2)%len(whole)] ^= y
		// As if the checksums of the head were right: what is behind them is looked at.
		if tables.w[headEra]&1 == 1 {
			for i := headTops; i < headWhy; i++ {
				tables.seal(i, uint32(tables.w[i]))
			}
		}
		fd := forge(t, unsafe.Slice((*byte)(unsafe.Pointer(&tables.w[0])), len(tables.mem)), len(tables.mem))
		n, err := Open(fd, 5, tiny)
		if err != nil {
			unix.Close(fd)
			return
		}
		for _, w := range n.All(0) {
			_ = n.String(w[0])
		}
		n.Put(0, []uint64{0, 1})
		n.Close()
	})
}
