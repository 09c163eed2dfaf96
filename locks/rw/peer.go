package rw

import (
	"slices"

	"github.com/dmxfs/dmxfs/locks"
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
	round uint64 // with the ticket's ID: the tag
	mode  locks.Mode
	rng   locks.Range
	own   holds
	// withdrawn: a CANCEL was sent after it, or a later request of the same
	// ticket. What comes is a no, if not the answer that was on its way.
	withdrawn bool
	// moved: it tells of an overtake.
	moved bool
	// crossed lists the peer's requests that were granted while this ask was
	// open: the peer may have answered before it had the grant.
	crossed []crossing
}

type crossing struct {
	tag tag
	rng locks.Range
}

func (a *ask) tag() tag { return tag{a.id, a.round} }

// ask is the open one of that tag, or nil.
func (p *peer) ask(t tag) *ask {
	for _, a := range p.asks {
		if a.tag() == t {
			return a
		}
	}
	return nil
}

// close removes an ask that has its answer.
func (p *peer) close(a *ask) {
	i := slices.Index(p.asks, a)
	p.asks = slices.Delete(p.asks, i, i+1)
}

// withdraw marks the request of a ticket that p has not answered, if there is
// one. There is at most one: the next one of the same ticket withdraws it.
func (p *peer) withdraw(id locks.TicketID) *ask {
	for _, a := range p.asks {
		if a.id == id && !a.withdrawn {
			a.withdrawn = true
			return a
		}
	}
	return nil
}

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

// give gives what a request asks for: this node's permission goes, and a writer
// gets one. An ask that is open for the same bytes is crossed by it, unless the
// peer gets the grant before it answers. Handover: this node had a permission.
func (p *peer) give(q *claim) (handover bool) {
	if p.auth.Overlaps(q.rng) {
		handover = true
		p.auth.Remove(q.rng)
	}
	if q.mode == locks.Write {
		p.given.Insert(q.rng)
	}
	for _, a := range p.asks {
		if a.mode == locks.Write && a.rng.Overlaps(q.rng) {
			a.crossed = append(a.crossed, crossing{q.tag, q.rng})
		}
	}
	return handover
}

// gain takes what a yes to a gives: the peer's own permission is gone, and a
// writer has one of the peer. But what this node granted to requests that the
// peer still had open, both have given and neither has: the answers crossed.
// The peer finds the same, so it does not have it either. Stale:
// the peer had a permission.
func (p *peer) gain(a *ask, open []tag) (stale bool) {
	if p.given.Overlaps(a.rng) {
		stale = true
		p.given.Remove(a.rng)
	}
	if a.mode == locks.Write {
		gain := locks.RangesOf(a.rng)
		for _, c := range a.crossed {
			if slices.Contains(open, c.tag) {
				gain = gain.Sub(c.rng)
			}
		}
		for _, r := range gain {
			p.auth.Insert(r)
		}
	}
	// A grant that the peer is known to have got crosses nothing any more.
	for _, b := range p.asks {
		b.crossed = slices.DeleteFunc(b.crossed, func(c crossing) bool {
			return c.rng.Overlaps(a.rng) && !slices.Contains(open, c.tag)
		})
	}
	return stale
}

// back takes back what the peer was given.
func (p *peer) back(r locks.Ranges) { p.given = p.given.Less(r) }

// maxRelease bounds the ranges in one message, and those given back in one turn
// by each member.
const maxRelease = 4096

// release gives up permissions that are not needed, and that were not asked for
// again: such an ask may have been granted already, and the peer would take the
// permission off its books when it gets the release. More: there are more of them.
func (p *peer) release(needed locks.Ranges) (idle locks.Ranges, more bool) {
	idle = p.auth.Minus(needed)
	for _, a := range p.asks {
		if a.mode == locks.Write {
			idle = idle.Sub(a.rng)
		}
	}
	if len(idle) > maxRelease {
		idle, more = idle[:maxRelease], true
	}
	if !idle.Empty() {
		idle = slices.Clone(idle) // the message outlives the turn, auth is changed in place
		p.auth = p.auth.Less(idle)
	}
	return idle, more
}
