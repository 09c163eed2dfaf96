package rw

import (
	"iter"
	"slices"

	"dmxfs/locks"
)

// hold puts t among the held tickets. What waits may now have to look again:
// a try that t denies, and what its owner waits for, see soft and request.
func (m *machine) hold(t *claim) {
	t.held = true
	root := &m.reads
	if t.mode == locks.Write {
		root = &m.writes
	}
	*root = insert(*root, t, byMode)
	m.owners[t.owner] = insert(m.owners[t.owner], t, byOwner)
	for _, u := range m.waiting {
		if !u.try {
			break // tries are the first
		}
		if u.conflict(t) {
			m.look(u)
		}
	}
	m.changes(t.owner)
}

// unhold takes t from the held tickets.
func (m *machine) unhold(t *claim) {
	root := &m.reads
	if t.mode == locks.Write {
		root = &m.writes
	}
	*root = remove(*root, t, byMode)
	if r := remove(m.owners[t.owner], t, byOwner); r != nil {
		m.owners[t.owner] = r
	} else {
		delete(m.owners, t.owner)
	}
	m.changes(t.owner) // see maxHolds
}

// changes notes that o holds more than before, or less. All that waits for it
// looks again, but only when everything else has: when many tickets of an owner
// are granted at a time each of them changes what it holds.
func (m *machine) changes(o locks.OwnerID) {
	if m.waits[o] > 0 && !m.frozen {
		m.changed[o] = struct{}{}
	}
}

// lookChanged has what waits for owners that changed look again, and reports
// whether there is anything.
func (m *machine) lookChanged() bool {
	if len(m.changed) == 0 {
		return false
	}
	for i := len(m.waiting) - 1; i >= 0; i-- { // as touch does it
		if _, ok := m.changed[m.waiting[i].owner]; ok {
			m.look(m.waiting[i])
		}
	}
	clear(m.changed)
	return len(m.lookWaiting) > 0
}

// maxHolds bounds the tickets of which a request says that its owner holds
// them: half of them begin before the range of the request, half do not. A
// claim that waits for the owner and stands in the way of the request overlaps
// both, so the nearest are those that matter. One that is not told of may
// cost the time until an overtake, and nothing else.
const maxHolds = 64

var noHolds holds

// holds is what the owner of t holds at and around the range of t.
func (m *machine) holds(t *claim) *holds {
	root := m.owners[t.owner]
	if root == nil {
		return &noHolds
	}
	var near []*claim
	add := func(u *claim) bool {
		near = append(near, u)
		return len(near) < maxHolds/2
	}
	before(root, byOwner, t.rng.Start, add)
	slices.Reverse(near)
	left := len(near)
	add = func(u *claim) bool {
		near = append(near, u)
		return len(near)-left < maxHolds/2
	}
	from(root, byOwner, t.rng.Start, add)
	var h holds
	for _, u := range near {
		h.any = extend(h.any, u.rng)
		if u.mode == locks.Write {
			h.write = extend(h.write, u.rng)
		}
	}
	return &h
}

// waitsFor reports whether a claim of another owner waits for something that
// the owner of c holds.
func (m *machine) waitsFor(u, c *claim) bool {
	if c.from != nil {
		return c.own.conflicts(u.mode, u.rng)
	}
	return excludes(m.owners[c.owner], u.mode, u.rng)
}

// partSize is how much is looked at between two breaths.
const partSize = 512

// writers yields held tickets that write, a part at a time. The bytes of all that
// are held when it ends are among theirs, if none is granted meanwhile: those that
// go may be yielded, and what is joined meanwhile more than once.
func (m *machine) writers(breathe func()) iter.Seq[[]*claim] {
	return func(yield func([]*claim) bool) {
		for x := uint64(0); ; breathe() {
			var part []*claim
			overlapping(m.writes, byMode, locks.Range{Start: x, End: locks.MaxOffset}, func(t *claim) bool {
				part = append(part, t)
				return len(part) < partSize
			})
			if len(part) == 0 || !yield(part) {
				return
			}
			// What begins behind these and ends before x is within one of them: an
			// owner's own may overlap. What is joined with one of them reaches
			// beyond x.
			for _, t := range part {
				x = max(x, t.rng.End)
			}
		}
	}
}

// written is what held tickets write.
func (m *machine) written(breathe func()) locks.Ranges {
	var s []locks.Range
	for part := range m.writers(breathe) {
		for _, t := range part {
			s = extend(s, t.rng)
		}
	}
	return s
}

// extend adds r to a set that has nothing that begins behind it.
func extend(s []locks.Range, r locks.Range) []locks.Range {
	if n := len(s); n > 0 && r.Start <= s[n-1].End {
		s[n-1].End = max(s[n-1].End, r.End)
		return s
	}
	return append(s, r)
}
