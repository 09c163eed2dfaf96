package rw

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// peers are the other members of an epoch.
type peers struct {
	view *locks.View
	// known are they, in the order of the view. There are none until something
	// is known of one: a node that only reads needs none, and most files are
	// only read. See others.
	known []*peer
}

// others are the peers, made now if there are none yet.
func (ps *peers) others() []*peer {
	if ps.known == nil {
		peers := make([]peer, len(ps.view.Members)-1)
		ps.known = make([]*peer, 0, len(peers))
		for _, id := range ps.view.Members {
			if id != ps.view.Self {
				p := &peers[len(ps.known)]
				p.id = id
				ps.known = append(ps.known, p)
			}
		}
	}
	return ps.known
}

func (ps *peers) peer(id locks.NodeID) *peer {
	for _, p := range ps.others() {
		if p.id == id {
			return p
		}
	}
	return nil
}

// Suspects are the members whose permission mode on r would need.
func (ps *peers) Suspects(mode locks.Mode, r locks.Range) []locks.NodeID {
	var s []locks.NodeID
	for _, p := range ps.others() {
		if p.lacks(mode, r) {
			s = append(s, p.id)
		}
	}
	return s
}

// owned is the first range at or behind x where this node has the permissions of
// all.
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
	for _, p := range ps.known {
		if p.id == id {
			return !p.auth.Empty() || len(p.asks) > 0
		}
	}
	return false
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
