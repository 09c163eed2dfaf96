package engine

import (
	"cmp"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// rows are collected under the engine's mutex, when there may be very many, and
// sorted when it has been let go of.
type rows[T any] struct {
	compare func(a, b *T) int
	chunks  [][]T
	n       int
}

func newRows[T any](compare func(a, b *T) int) *rows[T] { return &rows[T]{compare: compare} }

// add never copies what was added before.
func (r *rows[T]) add(x T) {
	if r.full() {
		r.grow()
	}
	last := len(r.chunks) - 1
	r.chunks[last] = append(r.chunks[last], x)
	r.n++
}

// full reports whether the next one to be added needs memory.
func (r *rows[T]) full() bool {
	last := len(r.chunks) - 1
	return last < 0 || len(r.chunks[last]) == cap(r.chunks[last])
}

// grow makes room for some more, if there is none.
func (r *rows[T]) grow() {
	const chunk = 512
	if r.full() {
		// The first chunks are short: mostly there are few rows.
		r.chunks = append(r.chunks, make([]T, 0, min(chunk, 8+r.n)))
	}
}

// pointers are those to all rows, sorted.
func (r *rows[T]) pointers() []*T {
	at := make([]*T, 0, r.n) // rows may be large
	for _, c := range r.chunks {
		for i := range c {
			at = append(at, &c[i])
		}
	}
	slices.SortFunc(at, r.compare)
	return at
}

func (r *rows[T]) sorted() []T {
	at := r.pointers()
	all := make([]T, len(at))
	for i, x := range at {
		all[i] = *x
	}
	return all
}

// lostRow is a lock that was lost, by its ticket.
type lostRow struct {
	id   locks.TicketID
	lost LostLock
}

func (a *lostRow) compare(b *lostRow) int {
	return cmp.Or(a.lost.Key.Compare(b.lost.Key), cmp.Compare(a.id, b.id))
}

func lostOf(found *rows[lostRow]) []LostLock {
	var lost []LostLock
	for _, r := range found.sorted() {
		lost = append(lost, r.lost)
	}
	return lost
}

func byKey(a, b **ticket) int {
	return cmp.Or((*a).entry.key.Compare((*b).entry.key), cmp.Compare((*a).ID, (*b).ID))
}
