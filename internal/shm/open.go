package shm

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Open is for a process that has got the descriptor of what another one has made by
// Create, and which is dead. It finds all records of that, and can go on with them.
// fd belongs to the tables from then on, unless there is an error.
func Open(fd int, generation uint64, f Form) (*Tables, error) {
	tables, texts, size, err := f.layout()
	if err != nil {
		return nil, err
	}
	has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: descriptor %d has no such memory (%w)", ErrDamaged, fd, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("the tables in memory: %w", err)
	}
	switch {
	case has&seals != seals || has&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0:
		return nil, damaged("its size may change, or nothing else may")
	case st.Size < page:
		return nil, damaged("it has %d bytes", st.Size)
	}
	t := &Tables{fd: fd, tables: tables, texts: texts, locked: true}
	// What another form has beyond the head is of no interest: it is told by that.
	if err := t.mmap(int(min(st.Size, int64(size)*8) / 8)); err != nil {
		return nil, fmt.Errorf("the tables in memory: %w", err)
	}
	if err = t.recover(generation, &f, &st); err != nil {
		unix.Munmap(t.mem)
		return nil, err
	}
	return t, nil
}

// recover reads what there is.
func (t *Tables) recover(generation uint64, f *Form, st *unix.Stat_t) error {
	if err := t.readHead(generation, f); err != nil {
		return err
	}
	if st.Size != t.size() {
		return damaged("it is longer or shorter than it was made")
	}
	has := st.Blocks * 512 // what there is of it, which no number in it can make more
	for i := range t.tables {
		tb := &t.tables[i]
		if err := t.readArea(&tb.place, &has); err != nil {
			return fmt.Errorf("table %d: %w", i, err)
		}
		tb.fresh = tb.place.top
	}
	for i := range t.texts.class {
		if err := t.readArea(&t.texts.class[i].area, &has); err != nil {
			return fmt.Errorf("texts of %d bytes: %w", sizes[i], err)
		}
	}
	t.texts.by = map[string]*text{}
	for i := range t.tables {
		if err := t.readTable(&t.tables[i]); err != nil {
			return fmt.Errorf("table %d: %w", i, err)
		}
	}
	for i := range t.texts.class {
		c := &t.texts.class[i]
		c.all = append(c.all, make([]*text, int(c.top)-len(c.all))...)
		for j := c.top; j > 0; j-- {
			if c.all[j-1] == nil {
				c.free = append(c.free, j-1)
			}
		}
	}
	return nil
}

// size is how long the memory is by its form, in bytes.
func (t *Tables) size() int64 {
	last := &t.texts.class[len(sizes)-1]
	return int64(last.at+int(last.max)*last.stride) * 8
}

func (t *Tables) readHead(generation uint64, f *Form) error {
	if atomic.LoadUint64(&t.w[headMagic]) != magic {
		return damaged("it does not begin as it should")
	}
	if v := t.w[headVersion]; v != version {
		return fmt.Errorf("%w: version %d, and this program has %d", ErrVersion, v, version)
	}
	if t.w[headSum] != t.headSum() {
		return damaged("its head has another checksum")
	}
	if t.w[headForm] != f.sum() {
		return fmt.Errorf("%w: other tables than this program has", ErrVersion)
	}
	if g := t.w[headGeneration]; g != generation {
		return fmt.Errorf("%w: %d, and not %d", ErrGeneration, g, generation)
	}
	if atomic.LoadUint64(&t.w[headFull]) != 0 {
		n := min(t.w[headWhyLen], maxWhy)
		return fmt.Errorf("%w: %q", ErrFull, t.mem[headWhy*8:headWhy*8+int(n)])
	}
	era, ok := t.sealed(headEra)
	if !ok || era == 0 {
		return damaged("its era has another checksum")
	}
	t.era = uint64(era)
	return nil
}

// readArea finds how much of a there is, of which has says how much there may be.
func (t *Tables) readArea(a *area, has *int64) error {
	top, ok := t.sealed(a.headTop)
	if !ok || top > a.max {
		return damaged("how many there are has another checksum, or cannot be (%d of %d)", top, a.max)
	}
	a.top, a.taken = top, int(top)*a.stride
	end := (a.taken*8 + page - 1) / page * page
	if *has -= int64(end); *has < page {
		return damaged("there is less memory than there should be")
	}
	if t.locked && top > 0 {
		t.locked = unix.Mlock(t.mem[a.at*8:a.at*8+end]) == nil
	}
	return nil
}

// readTable checks all slots, finds those that are free, and counts the texts.
func (t *Tables) readTable(tb *table) error {
	for i := range tb.place.top {
		used, era, ok := t.valid(tb, i)
		switch {
		case !ok:
			return damaged("record %d has another checksum", i+1)
		case used && era > t.era:
			return damaged("record %d is of era %d, in era %d", i+1, era, t.era)
		case !used || era < t.era:
			tb.free = append(tb.free, i)
			continue
		}
		for _, ref := range t.record(tb, i+1)[:tb.Texts] {
			if err := t.found(ref); err != nil {
				return fmt.Errorf("record %d: %w", i+1, err)
			}
		}
	}
	return nil
}

// found counts a reference to a text.
func (t *Tables) found(ref uint64) error {
	if ref == 0 {
		return nil
	}
	if x := t.known(ref); x != nil {
		x.count++
		return nil
	}
	s, err := t.read(ref)
	if err != nil {
		return err
	}
	if t.texts.by[s] != nil {
		return damaged("a text is there twice")
	}
	n, i, serial := splitRef(ref)
	c := &t.texts.class[n]
	if missing := int(i) + 1 - len(c.all); missing > 0 {
		c.all = append(c.all, make([]*text, missing)...)
	}
	x := &text{ref: ref, s: s, count: 1}
	c.all[i], t.texts.by[s] = x, x
	t.texts.serial = max(t.texts.serial, serial)
	return nil
}
