package shm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Of tables that one process after the other has made, each with a generation that is
// higher than all before, those of the highest one count which were begun. That is so
// from when they have the record that says whose they are, which their process writes
// last, and for good: if they are damaged, full, or void since, there is nothing to go on
// with, and nobody falls back to older ones. Who was killed before has changed nothing
// that the older ones say.
//
// What is older is made void, so that it does not matter either if the newest are not
// found one day.
//
// So for each process that goes on: OpenNewest, Create with the next generation, all
// records, the one that says whose they are, Supersede. It can be killed after each step.

// ErrOver is the error of tables that were begun, and are void: what they were about has
// ended, or others have come after.
var ErrOver = errors.New("the tables in memory say nothing any more")

// ErrNotBegun is the error of tables that do not say whose they are: who has made them
// was killed too early.
var ErrNotBegun = errors.New("the tables in memory were not begun")

// Candidate is a descriptor of tables that Create has returned, and what it was given for
// them. Of a process that was killed in Create there is none.
type Candidate struct {
	FD         int
	Generation uint64
}

// OpenNewest opens those of the candidates that count; the record that says whose they
// are is in table whose. The descriptor belongs to the result, and the others to the
// caller. Those of lower generations are void from then on, also if a process that came
// after them was killed before it could see to that. With an error, ErrNotBegun if nobody had begun, all belong to the caller, and
// none of them may be used.
func OpenNewest(f Form, whose int, candidates []Candidate) (*Tables, error) {
	sorted := slices.Clone(candidates)
	slices.SortFunc(sorted, func(a, b Candidate) int { return cmp.Compare(b.Generation, a.Generation) })
	for i, c := range sorted[min(1, len(sorted)):] {
		if sorted[i].Generation == c.Generation {
			return nil, fmt.Errorf("%w: two are of generation %d", ErrGeneration, c.Generation)
		}
	}
	for i, c := range sorted {
		t, err := Open(c.FD, c.Generation, f)
		if err != nil {
			return nil, fmt.Errorf("generation %d: %w", c.Generation, err) // it may have been begun
		}
		if err = t.begun(whose); err == nil {
			supersedeAll(f, whose, sorted[i+1:])
			return t, nil
		}
		unix.Munmap(t.mem)
		if !errors.Is(err, ErrNotBegun) {
			return nil, fmt.Errorf("generation %d: %w", c.Generation, err)
		}
	}
	return nil, ErrNotBegun
}

// supersedeAll makes candidates void that others have come after. Those that cannot be
// read are of no use to anybody anyway.
func supersedeAll(f Form, whose int, older []Candidate) {
	for _, c := range older {
		t, err := Open(c.FD, c.Generation, f)
		if err != nil {
			continue
		}
		if t.begun(whose) == nil {
			t.Clear()
		}
		unix.Munmap(t.mem)
	}
}

// begun is nil if t has the record that says whose it is.
func (t *Tables) begun(whose int) error {
	for range t.All(whose) {
		return nil
	}
	if t.era > firstEra {
		return ErrOver
	}
	return ErrNotBegun
}

// Supersede makes the tables void that t has come after, also for who does not find t. It
// is an error, and nothing is done, if t does not count yet. If t is full all is lost with
// this process; and so it is with t if t has ended already. It comes before anything of t
// is told to somebody, so that it does not matter which of the two the next process finds.
func (t *Tables) Supersede(old *Tables, whose int) error {
	if g := old.Generation(); g >= t.Generation() {
		return fmt.Errorf("%w: %d does not come after %d", ErrGeneration, t.Generation(), g)
	}
	if err := t.begun(whose); t.full == nil && errors.Is(err, ErrNotBegun) {
		return err
	}
	old.Clear()
	return nil
}
