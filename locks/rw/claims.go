package rw

import "github.com/dmxfs/dmxfs/locks"

// claims are all that a node knows of for one key: who blocks whom.
type claims struct {
	tickets
	waiting line
	owed    queue // requests of peers
	held    held
	spare   *pending // to be used again, or nil
}

// pendingOf is a pending with that rank.
func (cs *claims) pendingOf(r rank) *pending {
	p := cs.spare
	if cs.spare = nil; p == nil {
		p = &pending{}
	}
	*p = pending{rank: r}
	return p
}

// blocker is a claim that blocks c, soft or hard, or nil; the same as before if
// it still does.
func (cs *claims) blocker(c *claim) *claim {
	if u := c.blocker; u != nil && (u.held || cs.queued(u, c)) {
		return u
	}
	if u := cs.soft(c); u != nil {
		return u
	}
	return cs.held.hard(c)
}

// queued reports whether c stands behind u, with which it conflicts. A wait
// does not stand behind what waits for its own owner.
func (cs *claims) queued(u, c *claim) bool {
	return u.compare(&c.rank) < 0 && (c.try || !cs.held.waitsFor(u, c))
}

// soft is a claim that conflicts with c and goes before it: a waiting ticket
// or, where c is a ticket too, a request that is owed. That is only fairness,
// so it does not count when that claim itself waits for the owner of c: they
// would wait for each other. Among several it is the last, so that those who
// wait in a line look one after another as the line moves on.
func (cs *claims) soft(c *claim) *claim {
	search := func(q queue) *claim {
		for i := q.find(c) - 1; i >= 0; i-- {
			if u := q[i]; u.conflict(c) && cs.queued(u, c) {
				return u
			}
		}
		return nil
	}
	if u := search(cs.waiting.queue); u != nil || c.from != nil {
		return u
	}
	return search(cs.owed)
}

// owing is the request of a ticket of p that is owed an answer.
func (cs *claims) owing(p *peer, id locks.TicketID) *claim {
	for _, q := range cs.owed {
		if q.from == p && q.id == id {
			return q
		}
	}
	return nil
}

// Wanted is the mode of the first peer that waits for what a ticket is held on
// here.
func (cs *claims) Wanted() locks.Mode {
	for _, q := range cs.owed {
		held := false
		stop := func(*claim) bool {
			held = true
			return false
		}
		overlapping(cs.held.writes, byMode, q.rng, stop)
		if q.mode == locks.Write {
			overlapping(cs.held.reads, byMode, q.rng, stop)
		}
		if held {
			return q.mode
		}
	}
	return 0
}
