package rw

import (
	"cmp"

	"github.com/dmxfs/dmxfs/locks"
)

// rank is a place in the one order by which everything gives way. It is total
// over all nodes: a stamp names its site, and an ID is never used twice there.
type rank struct {
	try bool
	// over is the clock at which the claim overtook the others, 0 if it never did.
	over  uint64
	stamp locks.Stamp
	id    locks.TicketID
}

// compare is negative when a comes before b: a try before a wait, then the
// latest overtaker, then the earliest stamp.
func (a *rank) compare(b *rank) int {
	if a.try != b.try {
		if a.try {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(b.over, a.over); c != 0 {
		return c
	}
	if c := a.stamp.Compare(b.stamp); c != 0 {
		return c
	}
	// A request that comes again with its old stamp can meet one that was
	// stamped by a machine that had forgotten it, see Idle.
	return cmp.Compare(a.id, b.id)
}

// A claim is a ticket of this node, waiting or held, or a waiting request of a
// peer that this node owes an answer.
//
// One that is held is small, since there may be 250,000: what only waiting
// claims need is in a pending of their own. It is shared by all that neither
// wait nor block anything.
type claim struct {
	id    locks.TicketID
	rng   locks.Range
	owner locks.OwnerID // of a ticket
	// links are the ticket's places in the trees of what is held; writes and mixed
	// say of each subtree that something in it is for writing, and that it is not
	// all of one owner.
	links         [trees]links
	writes, mixed [trees]bool
	mode          locks.Mode
	held          bool // it is a ticket, and held
	queued        bool // to be looked at in this turn
	*pending
}

// pending is what there is to know of a claim that waits, or blocks another one.
type pending struct {
	rank

	// Of a ticket: how often it asked.
	round uint64
	// moved: it has overtaken and not looked since. bids is how often it may
	// still overtake by itself, see onClock.
	moved bool
	bids  int

	// Of a request: who asks, by which tag, and what its owner holds there.
	from *peer
	tag  tag
	own  holds

	// blocker is one claim that keeps this one from being granted, if any;
	// blocking are the claims of which this one is the blocker, and place is
	// the index of this one among those of its blocker. A claim is looked at
	// again when its blocker goes, see pump.
	blocker  *claim
	blocking []*claim
	place    int
}

// nothing is the pending of claims that have none of their own. It never changes.
var nothing pending

// newClaim is a ticket that does not wait.
func newClaim(id locks.TicketID, m locks.Mode, r locks.Range, o locks.OwnerID) *claim {
	return &claim{id: id, mode: m, rng: r, owner: o, pending: &nothing}
}

// rest takes away what a ticket does not need that is held from now on, to be
// used again; nil if it still does.
func (c *claim) rest() *pending {
	p := c.pending
	if len(p.blocking) > 0 || p.blocker != nil {
		return nil
	}
	c.pending = &nothing
	return p
}

// conflict reports whether a and b exclude each other. Owners are per node, so
// a request conflicts with a ticket whatever its owner.
func (a *claim) conflict(b *claim) bool {
	return (a.mode == locks.Write || b.mode == locks.Write) && a.rng.Overlaps(b.rng) &&
		(a.from != nil || b.from != nil || a.owner != b.owner)
}

// block makes u the blocker of c; u may be nil.
func (c *claim) block(u *claim) {
	if c.blocker == u {
		return // also where c has no pending of its own, and u is nil
	}
	if o := c.blocker; o != nil {
		last := o.blocking[len(o.blocking)-1]
		o.blocking[c.place], last.place = last, c.place
		o.blocking = o.blocking[:len(o.blocking)-1]
	}
	if c.blocker = u; u != nil {
		if u.pending == &nothing {
			u.pending = &pending{}
		}
		c.place = len(u.blocking)
		u.blocking = append(u.blocking, c)
	}
}

// holds is what one owner holds: at all, and for writing.
type holds struct {
	any, write locks.Ranges
}

// conflicts reports whether a claim of another owner, for r in mode m, waits
// for what is held.
func (h *holds) conflicts(m locks.Mode, r locks.Range) bool {
	if m == locks.Write {
		return h.any.Overlaps(r)
	}
	return h.write.Overlaps(r)
}

func (h *holds) includes(o *holds) bool {
	return h.any.Includes(o.any) && h.write.Includes(o.write)
}

// request is the next one of a ticket; it is the same for all peers.
func (t *claim) request(own *holds) *request {
	t.round++
	r := &request{
		tag: tag{t.id, t.round}, sn: t.stamp.SN, n: t.stamp.N, over: t.over,
		mode: t.mode, rng: t.rng, try: t.try,
	}
	if own != nil {
		r.own = *own
	}
	return r
}
