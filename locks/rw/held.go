package rw

import (
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
		if u.owner == t.owner || u.try && u.conflict(t) {
			m.look(u)
		}
	}
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
	for _, u := range m.waiting {
		if u.owner == t.owner {
			m.look(u) // see maxHolds
		}
	}
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
	return !overlapping(m.owners[c.owner], byOwner, u.rng, func(h *claim) bool {
		return h.mode == locks.Read && u.mode == locks.Read
	})
}

// written is what held tickets write.
func (m *machine) written() locks.Ranges {
	var s []locks.Range
	walk(m.writes, byMode, func(t *claim) bool {
		s = extend(s, t.rng)
		return true
	})
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
