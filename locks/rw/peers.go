package rw

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// peers are the other members of an epoch.
type peers struct {
	view *locks.View
	// known are those of whom something is known, or was, in the order of the view:
	// of most files a node knows nothing, or only who writes them, and a view has up to a
	// hundred members. Of the others it has no permission, nor have they one of this node.
	known []*peer
}

// all reports whether every peer is known.
func (ps *peers) all() bool { return len(ps.known) == len(ps.view.Members)-1 }

// others are all peers, who are known from then on.
func (ps *peers) others() []*peer {
	if ps.all() {
		return ps.known
	}
	made := make([]peer, len(ps.view.Members)-1-len(ps.known))
	old := ps.known
	ps.known = make([]*peer, 0, len(ps.view.Members)-1)
	for _, id := range ps.view.Members {
		switch {
		case id == ps.view.Self:
		case len(old) > 0 && old[0].id == id:
			ps.known, old = append(ps.known, old[0]), old[1:]
		default:
			made[0].id = id
			ps.known, made = append(ps.known, &made[0]), made[1:]
		}
	}
	return ps.known
}

// peer is the one of that name, who is known from then on; nil if no other member has it.
func (ps *peers) peer(id locks.NodeID) *peer {
	if p := ps.find(id); p != nil || ps.all() || id == ps.view.Self {
		return p
	}
	before := 0 // of the known ones
	for _, member := range ps.view.Members {
		if member == id {
			p := &peer{id: id}
			ps.known = slices.Insert(ps.known, before, p)
			return p
		}
		if before < len(ps.known) && ps.known[before].id == member {
			before++
		}
	}
	return nil
}

// concerned are the peers whose permission a lock in mode could need.
func (ps *peers) concerned(mode locks.Mode) []*peer {
	if mode == locks.Write {
		return ps.others()
	}
	return ps.known
}

// find is the known peer of that name, or nil.
func (ps *peers) find(id locks.NodeID) *peer {
	for _, p := range ps.known {
		if p.id == id {
			return p
		}
	}
	return nil
}

// Suspects are the members whose permission mode on r would need.
func (ps *peers) Suspects(mode locks.Mode, r locks.Range) []locks.NodeID {
	var s []locks.NodeID
	for _, p := range ps.concerned(mode) {
		if p.lacks(mode, r) {
			s = append(s, p.id)
		}
	}
	return s
}

// owned is the first range at or behind x where this node has the permissions of
// all. REQUIRES: one is known. If not all are it has none: who asks one asks all.
func (ps *peers) owned(x uint64) (r locks.Range, ok bool) {
	for {
		r = locks.Range{Start: x, End: locks.MaxOffset}
		for _, p := range ps.known {
			next, ok := p.auth.Next(x)
			if !ok {
				return r, false
			}
			r = locks.Range{Start: max(r.Start, next.Start), End: min(r.End, next.End)}
		}
		if r.Start == x {
			return r, true
		}
		x = r.Start
	}
}

// Keeps reports whether p would lose sight of something if it forgot what it
// gave this node: a permission, or one that may be on its way.
func (ps *peers) Keeps(id locks.NodeID) bool {
	p := ps.find(id)
	return p != nil && (!p.auth.Empty() || len(p.asks) > 0)
}

// check verifies I1 to I4 as far as one node can see them.
func (ps *peers) check(all tickets) error {
	for _, p := range ps.known {
		if !p.auth.Valid() || !p.given.Valid() {
			return fmt.Errorf("%s: malformed sets %v, %v", p.id, p.auth, p.given)
		}
		if p.auth.Meets(p.given) {
			return fmt.Errorf("I2: auth %v and given %v of %s meet", p.auth, p.given, p.id)
		}
		for _, t := range all {
			if !t.held {
				continue
			}
			if t.mode == locks.Write && !p.auth.Contains(t.rng) {
				return fmt.Errorf("I3: ticket %d writes %v, but auth of %s is %v", t.id, t.rng, p.id, p.auth)
			}
			if t.mode == locks.Read && p.given.Overlaps(t.rng) {
				return fmt.Errorf("I4: ticket %d reads %v, but %v is given to %s", t.id, t.rng, p.given, p.id)
			}
		}
	}
	return nil
}
