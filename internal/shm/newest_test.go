package shm

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// lineage are tables that processes have made one after the other.
type lineage struct {
	*testing.T
	all []*Tables
}

func (l *lineage) candidates() (cs []Candidate) {
	for _, t := range l.all {
		cs = append(cs, Candidate{t.fd, t.Generation()})
	}
	return cs
}

// make is what the next process does first.
func (l *lineage) make() *Tables {
	l.Helper()
	t, err := Create("test", uint64(len(l.all)+1), small)
	if err != nil {
		l.Fatal(err)
	}
	l.all = append(l.all, t)
	l.Cleanup(func() { t.Close() })
	return t
}

// counts checks which generation counts, and with which value; 0: none, for the error.
func (l *lineage) counts(step string, generation, value uint64, want error) {
	l.Helper()
	cs := l.candidates()
	for i := range cs {
		fd, err := unix.FcntlInt(uintptr(cs[i].FD), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			l.Fatal(err)
		}
		cs[i].FD = fd
	}
	t, err := OpenNewest(small, 0, cs)
	kept := -1
	if err == nil {
		kept = t.fd
		found := uint64(0)
		for _, w := range t.All(1) {
			found = w[1]
		}
		if t.Generation() != generation || found != value {
			l.Errorf("%s: generation %d counts, with %d; want %d with %d", step, t.Generation(), found, generation, value)
		}
		t.Close()
	} else if generation != 0 || !errors.Is(err, want) {
		l.Errorf("%s: %v, want generation %d, or %v", step, err, generation, want)
	}
	for _, c := range cs {
		if c.FD != kept {
			if err := unix.Close(c.FD); err != nil {
				l.Errorf("%s: descriptor %d is not the caller's: %v", step, c.FD, err)
			}
		}
	}
}

func put(tb testing.TB, t *Tables, table int, value uint64) uint32 {
	tb.Helper()
	w := make([]uint64, t.tables[table].Words)
	w[t.tables[table].Texts] = value
	n, err := t.Put(table, w)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// Whenever a process is killed the next one finds the tables that count, and never older
// ones than somebody has gone on with.
func TestTheNewestTablesCount(t *testing.T) {
	l := &lineage{T: t}
	l.counts("there is nothing", 0, 0, ErrNotBegun)
	a := l.make()
	l.counts("the first are made", 0, 0, ErrNotBegun)
	put(t, a, 1, 10)
	l.counts("they have something", 0, 0, ErrNotBegun)
	put(t, a, 0, 1)
	l.counts("they say whose they are", 1, 10, nil)
	b := l.make()
	l.counts("the second are made", 1, 10, nil)
	put(t, b, 1, 20)
	l.counts("they have something", 1, 10, nil)
	if err := b.Supersede(a, 0); !errors.Is(err, ErrNotBegun) {
		t.Errorf("Supersede before they were begun: %v", err)
	}
	l.counts("that was too early", 1, 10, nil)
	put(t, b, 0, 2)
	l.counts("they say whose they are", 2, 20, nil)
	if err := a.Supersede(b, 0); !errors.Is(err, ErrGeneration) {
		t.Errorf("Supersede by older ones: %v", err)
	}
	all := l.all
	l.all = all[:1]
	l.counts("its process was killed then, but the next one has found both", 0, 0, ErrOver)
	l.all = all
	if err := b.Supersede(a, 0); err != nil {
		t.Error(err)
	}
	l.counts("the first are void", 2, 20, nil)
	c := l.make() // and its process is killed at once
	l.counts("the third are made", 2, 20, nil)
	d := l.make()
	put(t, d, 1, 40)
	l.counts("the fourth have something", 2, 20, nil)
	put(t, d, 0, 4)
	l.counts("they say whose they are", 4, 40, nil)
	if c.begun(0) == nil {
		t.Error("the third were never begun")
	}
	d.Clear()
	l.counts("the tenure of the fourth is over", 0, 0, ErrOver)
	if err := d.Supersede(b, 0); err != nil {
		t.Error(err)
	}
	l.all = all[:2]
	l.counts("the fourth are not found", 0, 0, ErrOver)
}

// What cannot be read may have counted, so that nothing older does.
func TestNobodyFallsBackToOlderTables(t *testing.T) {
	for _, x := range []struct {
		damage func(*Tables)
		want   error
	}{
		{func(n *Tables) { n.SetFull("a test") }, ErrFull},
		{func(n *Tables) { n.w[headSum]++ }, ErrDamaged},
		{func(n *Tables) { n.w[headVersion]++ }, ErrVersion},
		{func(n *Tables) { n.w[headEra] ^= 1 << 40 }, ErrDamaged},
		{func(n *Tables) { n.Clear() }, ErrOver},
	} {
		l := &lineage{T: t}
		a := l.make()
		put(t, a, 0, 1)
		b := l.make()
		x.damage(b)
		l.counts("of a process that was killed", 0, 0, x.want)
	}
	l := &lineage{T: t}
	put(t, l.make(), 0, 1)
	b := l.make()
	b.SetFull("a test")
	if err := b.Supersede(l.all[0], 0); err != nil {
		t.Error(err)
	}
	l.all = l.all[:1]
	l.counts("full ones have come after", 0, 0, ErrOver)
	cs := l.candidates()
	if _, err := OpenNewest(small, 0, append(cs, cs[0])); !errors.Is(err, ErrGeneration) {
		t.Errorf("the same twice: %v", err)
	}
}

// Tables that were full are void after Renew, and then complete again; whenever somebody is
// killed in it, nobody takes them for complete, or falls back to older ones.
func TestTablesAreRenewed(t *testing.T) {
	l := &lineage{T: t}
	a := l.make()
	put(t, a, 0, 1)
	b := l.make()
	put(t, b, 1, 20)
	put(t, b, 0, 2)
	b.SetFull("a test")
	l.counts("they are full", 0, 0, ErrFull)
	b.Clear() // as far as Renew comes first
	l.counts("they are void", 0, 0, ErrFull)
	b.Renew()
	l.counts("they are not full any more", 0, 0, ErrOver)
	if err := b.Full(); err != nil {
		t.Error(err)
	}
	put(t, b, 1, 21)
	l.counts("they have something", 0, 0, ErrOver)
	put(t, b, 0, 3)
	l.counts("they say whose they are", 2, 21, nil)
	b.SetFull("another test")
	if err := b.Full(); err == nil || !strings.Contains(err.Error(), "another test") {
		t.Errorf("full again: %v", err)
	}
	l.counts("they are full again", 0, 0, ErrFull)
}

// Who supersedes others has them void before anybody looks for what counts.
func TestSupersede(t *testing.T) {
	l := &lineage{T: t}
	a := l.make()
	put(t, a, 0, 1)
	b := l.make()
	put(t, b, 0, 2)
	if err := b.Supersede(a, 0); err != nil {
		t.Error(err)
	}
	l.all = l.all[:1]
	l.counts("the second are not found", 0, 0, ErrOver)
}
