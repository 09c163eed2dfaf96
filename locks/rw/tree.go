package rw

import (
	"cmp"

	"github.com/dmxfs/dmxfs/locks"
)

// A held ticket is in two trees: that of its mode, which finds what stands in
// the way of a claim, and that of its owner, which tells what the owner holds.
const (
	byMode = iota
	byOwner
	trees
)

// links are a ticket's place in one tree.
type links struct {
	left, right *claim
	end         uint64 // the largest end of a range in this subtree
}

// The trees are treaps ordered by (start, id), with the largest end of each
// subtree, so that what overlaps a range is found without a look at the rest; and
// with whose it is, and whether there is a write in it, since an owner's own
// tickets do not stand in its way, nor reads in that of a read, and there may be
// very many of them.
// Insertion and removal take O(log n), no memory, and no random number: a
// ticket's priority is a hash of its ID.

func priority(id locks.TicketID) uint64 {
	x := uint64(id) + 0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func inOrder(a, b *claim) int {
	if c := cmp.Compare(a.rng.Start, b.rng.Start); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

// fix sets what t knows of its subtree from its children, and returns t.
func fix(t *claim, k int) *claim {
	l := &t.links[k]
	l.end, t.writes[k], t.mixed[k] = t.rng.End, t.mode == locks.Write, false
	for _, c := range [...]*claim{l.left, l.right} {
		if c != nil {
			l.end = max(l.end, c.links[k].end)
			t.writes[k] = t.writes[k] || c.writes[k]
			t.mixed[k] = t.mixed[k] || c.mixed[k] || c.owner != t.owner
		}
	}
	return t
}

// insert is the tree t with c.
func insert(t, c *claim, k int) *claim {
	switch {
	case t == nil || priority(c.id) > priority(t.id):
		c.links[k].left, c.links[k].right = split(t, c, k)
		return fix(c, k)
	case inOrder(c, t) < 0:
		t.links[k].left = insert(t.links[k].left, c, k)
	default:
		t.links[k].right = insert(t.links[k].right, c, k)
	}
	return fix(t, k)
}

// split is what is before c in t, and what is after it.
func split(t, c *claim, k int) (before, after *claim) {
	switch {
	case t == nil:
		return nil, nil
	case inOrder(c, t) < 0:
		before, t.links[k].left = split(t.links[k].left, c, k)
		return before, fix(t, k)
	default:
		t.links[k].right, after = split(t.links[k].right, c, k)
		return fix(t, k), after
	}
}

// remove is the tree t without c, which is in it.
func remove(t, c *claim, k int) *claim {
	switch {
	case t == c:
		return join(c.links[k].left, c.links[k].right, k)
	case inOrder(c, t) < 0:
		t.links[k].left = remove(t.links[k].left, c, k)
	default:
		t.links[k].right = remove(t.links[k].right, c, k)
	}
	return fix(t, k)
}

// join is the tree of a and b; all of a is before all of b.
func join(a, b *claim, k int) *claim {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case priority(a.id) > priority(b.id):
		a.links[k].right = join(a.links[k].right, b, k)
		return fix(a, k)
	default:
		b.links[k].left = join(a, b.links[k].left, k)
		return fix(b, k)
	}
}

// walk yields what is in t, in order. It is false if yield was.
func walk(t *claim, k int, yield func(*claim) bool) bool {
	return t == nil ||
		walk(t.links[k].left, k, yield) && yield(t) && walk(t.links[k].right, k, yield)
}

// before yields what in t begins before x, the last first.
func before(t *claim, k int, x uint64, yield func(*claim) bool) bool {
	if t == nil {
		return true
	}
	l := &t.links[k]
	if t.rng.Start >= x {
		return before(l.left, k, x, yield)
	}
	return before(l.right, k, x, yield) && yield(t) && before(l.left, k, x, yield)
}

// from yields what in t begins at x or after it, in order.
func from(t *claim, k int, x uint64, yield func(*claim) bool) bool {
	if t == nil {
		return true
	}
	l := &t.links[k]
	if t.rng.Start < x {
		return from(l.right, k, x, yield)
	}
	return from(l.left, k, x, yield) && yield(t) && from(l.right, k, x, yield)
}

// overlapping yields, in order, what in t overlaps r.
func overlapping(t *claim, k int, r locks.Range, yield func(*claim) bool) bool {
	return search(t, k, r, func(*claim) bool { return false }, yield)
}

// search is overlapping without subtrees that are of no interest.
func search(t *claim, k int, r locks.Range, skip, yield func(*claim) bool) bool {
	if t == nil || t.links[k].end <= r.Start || skip(t) {
		return true
	}
	if !search(t.links[k].left, k, r, skip, yield) {
		return false
	}
	if t.rng.Start >= r.End {
		return true // and so is all to the right
	}
	if r.Start < t.rng.End && !yield(t) {
		return false
	}
	return search(t.links[k].right, k, r, skip, yield)
}

// obstacles yields, in order, the tickets in the tree of a mode that conflict
// with c, of which that mode is known to.
func obstacles(t, c *claim, yield func(*claim) bool) bool {
	own := func(t *claim) bool { return c.from == nil && !t.mixed[byMode] && t.owner == c.owner }
	return search(t, byMode, c.rng, own, func(u *claim) bool { return !u.conflict(c) || yield(u) })
}

// obstacle is a ticket in the tree of a mode that conflicts with c, or nil.
func obstacle(t, c *claim) *claim {
	var found *claim
	obstacles(t, c, func(u *claim) bool {
		found = u
		return false
	})
	return found
}

// excludes reports whether something in the tree of an owner keeps others from
// having r in mode m.
func excludes(t *claim, m locks.Mode, r locks.Range) bool {
	reads := func(t *claim) bool { return m == locks.Read && !t.writes[byOwner] }
	return !search(t, byOwner, r, reads, func(h *claim) bool { return m == locks.Read && h.mode == locks.Read })
}
