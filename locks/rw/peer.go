package rw

import (
	"slices"

	"dmxfs/locks"
)

// A peer is what a node knows of another member.
type peer struct {
	id locks.NodeID
	// auth is where this node may write without asking the peer; given is
	// where the peer may write without asking this node. Their memory is
	// shared with nothing: they are changed in place.
	auth, given locks.Ranges
	// asks are this node's requests that the peer has not answered, in the
	// order in which they were sent.
	asks []*ask
}

// An ask is a request as it was sent.
type ask struct {
	rank
	round     uint64 // with the ticket's ID: the tag
	mode      locks.Mode
	rng       locks.Range
	own       holds
	withdrawn bool // a CANCEL was sent after it
	// crossed lists the peer's requests that were granted while this ask was
	// open: the peer may have answered before it had the grant.
	crossed []crossing
}

type crossing struct {
	tag tag
	rng locks.Range
}

func (a *ask) tag() tag { return tag{a.id, a.round} }

// lacks reports whether a claim for r in mode m needs something of p.
func (p *peer) lacks(m locks.Mode, r locks.Range) bool {
	if m == locks.Write {
		return !p.auth.Contains(r)
	}
	return p.given.Overlaps(r)
}

// serves reports whether the answer to a is as good for t, whose owner holds
// own, as the answer to a request of t itself would be. It must be for the same
// range and mode: what keeps a wider or stronger one waiting may be nothing to
// t. It must not be a later one, which may wait behind what t is in front of. A
// try has its own, since a no denies that ticket and no other.
func (a *ask) serves(t *claim, own *holds) bool {
	if t.try {
		return a.id == t.id
	}
	return !a.try && !a.withdrawn && a.mode == t.mode && a.rng == t.rng &&
		t.compare(&a.rank) >= 0 && a.own.includes(own)
}

// served reports whether an answer is under way from p that serves t.
func (p *peer) served(t *claim, own *holds) bool {
	return slices.ContainsFunc(p.asks, func(a *ask) bool { return a.serves(t, own) })
}

// open are the tags of the asks at p for bytes of r.
func (p *peer) open(r locks.Range) []tag {
	var s []tag
	for _, a := range p.asks {
		if a.rng.Overlaps(r) {
			s = append(s, a.tag())
		}
	}
	return s
}
