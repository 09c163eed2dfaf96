package engine

import (
	"iter"
	"maps"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// tally counts something by numbers: of owners, or of open files. Mostly there is
// one number.
type tally struct {
	number uint64
	n      int
	more   map[uint64]int // all of it, if there was more than one number
}

// add counts d more of a number, and reports whether anything is left.
func (t *tally) add(number uint64, d int) bool {
	switch {
	case t.more != nil:
		if t.more[number] += d; t.more[number] == 0 {
			delete(t.more, number)
		}
		return len(t.more) > 0
	case t.n != 0 && t.number != number:
		t.more = map[uint64]int{t.number: t.n, number: d}
		return true
	}
	t.number = number
	t.n += d
	return t.n > 0
}

// has reports whether there is any of a number; other, of another one.
func (t *tally) has(number uint64) bool {
	switch {
	case t == nil:
		return false
	case t.more != nil:
		return t.more[number] > 0
	}
	return t.n > 0 && t.number == number
}

func (t *tally) other(number uint64) bool {
	switch {
	case t == nil:
		return false
	case t.more != nil:
		return len(t.more) > 1 || len(t.more) == 1 && t.more[number] == 0
	}
	return t.n > 0 && t.number != number
}

// all yields the numbers, in no order.
func (t *tally) all() iter.Seq[uint64] {
	switch {
	case t == nil:
		return func(func(uint64) bool) {}
	case t.more != nil:
		return maps.Keys(t.more)
	case t.n == 0:
		return func(func(uint64) bool) {}
	}
	return func(yield func(uint64) bool) { yield(t.number) }
}

// sorted lists the numbers.
func (t *tally) sorted() []uint64 { return slices.Sorted(t.all()) }

// count counts d more of a number in what m has of k.
func count[K comparable](m *map[K]*tally, k K, number uint64, d int) (isNew bool) {
	t := (*m)[k]
	if t == nil {
		if *m == nil {
			*m = map[K]*tally{}
		}
		t, isNew = new(tally), true
		(*m)[k] = t
	}
	if !t.add(number, d) {
		delete(*m, k)
	}
	return isNew
}

// process is one process of this node, the zero value one that is not known.
type process struct {
	pid  int
	life uint64
}

func processOf(p *locks.Program) process {
	if p.PID == 0 {
		return process{}
	}
	return process{p.PID, p.Process}
}

// took notes that t is held from now on.
func (en *entry) took(t *ticket) {
	if !t.held {
		t.held = true
		en.note(t, 1)
	}
}

// gaveUp notes that t, if it was held, is not any more.
func (en *entry) gaveUp(t *ticket) {
	if t.held {
		en.note(t, -1)
	}
}

func (en *entry) note(t *ticket, d int) {
	en.held += d
	if t.Mode == locks.Write {
		en.written += d
	}
	number := uint64(t.req.Owner)
	switch en.key.Class {
	case locks.Open:
		if en.opened == nil {
			en.opened = map[locks.OwnerID]int{}
		}
		if en.opened[t.req.Owner] += d; en.opened[t.req.Owner] == 0 {
			delete(en.opened, t.req.Owner)
		}
	case locks.Posix:
		count(&en.through, t.Handle, number, d)
	}
	if p := processOf(&t.req.Program); p != (process{}) {
		count(&en.processes, p, number, d)
	}
	if th := t.req.Program.Thread(); th != (locks.Thread{}) {
		if en.key.Class == locks.Open {
			number = uint64(t.Handle)
		}
		if count(&en.takers, th, number, d) {
			en.serial++
		}
	}
}
