package rw

import (
	"iter"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// held are the held tickets: the roots of the trees of each mode and owner.
type held struct {
	reads, writes *claim
	owners        map[locks.OwnerID]*claim
}

// of is the tree of a mode.
func (h *held) of(m locks.Mode) **claim {
	if m == locks.Write {
		return &h.writes
	}
	return &h.reads
}

func (h *held) add(t *claim) {
	t.held = true
	root := h.of(t.mode)
	*root = insert(*root, t, byMode)
	if h.owners == nil {
		h.owners = map[locks.OwnerID]*claim{}
	}
	h.owners[t.owner] = insert(h.owners[t.owner], t, byOwner)
}

func (h *held) remove(t *claim) {
	root := h.of(t.mode)
	*root = remove(*root, t, byMode)
	if r := remove(h.owners[t.owner], t, byOwner); r != nil {
		h.owners[t.owner] = r
	} else {
		delete(h.owners, t.owner)
	}
}

// hard is a held ticket that conflicts with c. That is what locks mean.
func (h *held) hard(c *claim) *claim {
	if u := obstacle(h.writes, c); u != nil || c.mode == locks.Read {
		return u
	}
	return obstacle(h.reads, c)
}

// maxHolds bounds the tickets of which a request says that its owner holds
// them: half of them begin before the range of the request, half do not. A
// claim that waits for the owner and stands in the way of the request overlaps
// both, so the nearest are those that matter. One that is not told of may
// cost the time until an overtake, and nothing else.
const maxHolds = 64

var noHolds holds

// by is what the owner of t holds at and around the range of t.
func (h *held) by(t *claim) *holds {
	root := h.owners[t.owner]
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
	var is holds
	for _, u := range near {
		is.any = extend(is.any, u.rng)
		if u.mode == locks.Write {
			is.write = extend(is.write, u.rng)
		}
	}
	return &is
}

// waitsFor reports whether a claim of another owner waits for something that
// the owner of c holds.
func (h *held) waitsFor(u, c *claim) bool {
	if c.from != nil {
		return c.own.conflicts(u.mode, u.rng)
	}
	return excludes(h.owners[c.owner], u.mode, u.rng)
}

// partSize is how much is looked at between two breaths.
const partSize = 512

// writers yields held tickets that write, a part at a time. The bytes of all that
// are held when it ends are among theirs, if none is granted meanwhile: those that
// go may be yielded, and what is joined meanwhile more than once.
func (h *held) writers(breathe func()) iter.Seq[[]*claim] {
	return func(yield func([]*claim) bool) {
		for x := uint64(0); ; breathe() {
			var part []*claim
			overlapping(h.writes, byMode, locks.Range{Start: x, End: locks.MaxOffset}, func(t *claim) bool {
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
func (h *held) written(breathe func()) locks.Ranges {
	var s []locks.Range
	for part := range h.writers(breathe) {
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
