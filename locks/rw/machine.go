package rw

import (
	"slices"

	"dmxfs/locks"
)

// Algorithm makes machines of this package.
var Algorithm = locks.Algorithm{
	Name:   "rw",
	Shared: true,
	New:    func(c locks.Config) locks.Machine { return newMachine(c) },
	Decode: decode,
}

// machine is one node's part of the algorithm for one key.
type machine struct {
	view *locks.View
	// peers are the other members, in the order of the view. There are none
	// until something is known of one: a node that only reads needs none, and
	// most files are only read. See others.
	peers []*peer

	high  uint64      // the largest SN or over seen: the H of the paper's stamps
	count uint64      // of the tickets stamped here
	token locks.Token // the largest of a grant known here

	tickets map[locks.TicketID]*claim
	waiting queue                 // tickets
	waits   map[locks.OwnerID]int // of waiting, by owner
	owed    queue                 // requests of peers

	// The held tickets: the roots of the trees of each mode and owner.
	reads, writes *claim
	owners        map[locks.OwnerID]*claim

	// What is to be looked at in this turn; see pump.
	// changed are owners of what waits that hold more or less than when it last
	// did so.
	lookOwed, lookWaiting agenda
	changed               map[locks.OwnerID]struct{}
	// barred: a ticket could have been granted but for Turn.MayEnter.
	barred bool
	// frozen: State has been said. Until Restore nobody enters and nothing
	// more is said, since the others go by what State announced.
	frozen bool
	// breathe is called between parts of what takes long.
	breathe func()
}

func newMachine(c locks.Config) *machine {
	m := &machine{
		tickets: make(map[locks.TicketID]*claim),
		owners:  make(map[locks.OwnerID]*claim),
		waits:   make(map[locks.OwnerID]int),
		changed: make(map[locks.OwnerID]struct{}),
		token:   c.Token,
	}
	if m.breathe = c.Breathe; m.breathe == nil {
		m.breathe = func() {}
	}
	m.install(c.View)
	return m
}

// install begins the epoch of v: nobody has given anything to anybody.
func (m *machine) install(v *locks.View) {
	m.view = v
	m.token = max(m.token, locks.TokenFloor(v.Epoch))
	m.peers = nil
}

// others are the peers, made now if there are none yet.
func (m *machine) others() []*peer {
	if m.peers == nil {
		peers := make([]peer, len(m.view.Members)-1)
		m.peers = make([]*peer, 0, len(peers))
		for _, id := range m.view.Members {
			if id != m.view.Self {
				p := &peers[len(m.peers)]
				p.id = id
				m.peers = append(m.peers, p)
			}
		}
	}
	return m.peers
}

func (m *machine) peer(id locks.NodeID) *peer {
	for _, p := range m.others() {
		if p.id == id {
			return p
		}
	}
	return nil
}

// Acquire adds a waiting ticket. A new one is stamped: a write with the next
// SN, and a read with the SN that the next write will have, as the paper's
// reads between two writes share one.
func (m *machine) Acquire(t locks.Ticket, out *locks.Turn) {
	m.mustBeNew(t.ID)
	mustBeSound(t.Mode, t.Range)
	s := t.Stamp
	if s.IsZero() {
		m.count++
		s = locks.Stamp{SN: m.high + 1, N: m.count}
		if t.Mode == locks.Write {
			m.high = s.SN
		}
	} else {
		m.high, m.count = max(m.high, s.SN), max(m.count, s.N)
	}
	s.Site = m.view.Self
	c := &claim{rank: rank{try: t.Try, stamp: s, id: t.ID}, mode: t.Mode, rng: t.Range, owner: t.Owner}
	m.tickets[c.id] = c
	m.waiting.insert(c)
	m.waits[c.owner]++
	m.look(c)
	m.pump(out)
}

// Cancel takes a waiting ticket back, and its requests.
func (m *machine) Cancel(id locks.TicketID, out *locks.Turn) {
	t := m.mustWait(id)
	m.forget(t)
	m.withdraw(t, out)
	m.pump(out)
}

// Replace rewrites held tickets of one owner. Permissions stay: nothing is
// sent to anybody who did not ask.
func (m *machine) Replace(old []locks.TicketID, parts []locks.Part, out *locks.Turn) {
	owner := m.mustReplace(old, parts)
	for _, id := range old {
		t := m.tickets[id]
		m.unhold(t)
		delete(m.tickets, id)
		m.unblock(t)
	}
	for _, p := range parts {
		t := &claim{rank: rank{id: p.ID}, mode: p.Mode, rng: p.Range, owner: owner}
		m.tickets[t.id] = t
		m.hold(t)
	}
	m.pump(out)
}

// Overtake moves a waiting ticket to the front of all waits. The value is that
// of a clock, so that the latest overtaker is the first. A try never queues,
// and so has nobody to overtake.
func (m *machine) Overtake(id locks.TicketID, out *locks.Turn) {
	t := m.mustWait(id)
	if t.try {
		return
	}
	t.bids = len(m.view.Members) - 1
	m.overtake(t)
	m.pump(out)
}

func (m *machine) overtake(t *claim) {
	m.waiting.remove(t)
	m.high++
	t.over = m.high
	t.moved = true
	m.waiting.insert(t)
	m.look(t)
}

// Resume grants what could not be granted because MayEnter was false.
func (m *machine) Resume(out *locks.Turn) { m.pump(out) }

// maxRelease bounds the ranges in one message, and those given back in one turn
// by each member.
const maxRelease = 4096

// Expire gives back permissions that no ticket needs, and that were not asked
// for again: such an ask may have been granted already, and the peer would
// take the permission off its books when it gets the release.
func (m *machine) Expire(out *locks.Turn) {
	if m.frozen {
		return
	}
	needed := m.written(func() {})
	for _, t := range m.waiting {
		if t.mode == locks.Write {
			needed = needed.Add(t.rng)
		}
	}
	for _, p := range m.peers {
		idle := p.auth.Minus(needed)
		for _, a := range p.asks {
			if a.mode == locks.Write {
				idle = idle.Sub(a.rng)
			}
		}
		if idle.Empty() {
			continue
		}
		if len(idle) > maxRelease {
			idle, out.More = idle[:maxRelease], true
		}
		idle = slices.Clone(idle) // the message outlives the turn, auth is changed in place
		p.auth = p.auth.Less(idle)
		out.Handover = true
		m.send(p, &release{idle, m.token}, out)
	}
	m.pump(out)
}

func (m *machine) send(p *peer, msg locks.Message, out *locks.Turn) {
	out.Send = append(out.Send, locks.Envelope{To: p.id, Msg: msg})
}

// forget removes a waiting ticket.
func (m *machine) forget(t *claim) {
	m.leave(t)
	delete(m.tickets, t.id)
	m.unblock(t)
}

// leave takes a ticket off the queue.
func (m *machine) leave(t *claim) {
	m.waiting.remove(t)
	if m.waits[t.owner]--; m.waits[t.owner] == 0 {
		delete(m.waits, t.owner)
	}
}

// unblock makes everything that c blocks look again, now that c is gone.
func (m *machine) unblock(c *claim) {
	c.block(nil)
	for n := len(c.blocking); n > 0; n = len(c.blocking) {
		x := c.blocking[n-1]
		x.block(nil)
		m.look(x)
	}
}
