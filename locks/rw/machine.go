package rw

import "github.com/dmxfs/dmxfs/locks"

// Algorithm is "rw" of the rules, the default: locks for reading are shared, and
// those on ranges that do not overlap do not concern each other.
var Algorithm = locks.Algorithm{
	Name:   "rw",
	Shared: true,
	New:    func(c locks.Config) locks.Machine { return newMachine(c) },
	Decode: decode,
}

// machine is one node's part of the algorithm for one key. What it knows is in
// the parts that it has here, none of which knows another; it says in which order
// they change, and what is told to whom.
type machine struct {
	peers
	stamps
	tokens
	claims

	// looks are what is to be looked at in this turn; see pump.
	looks looks
	// barred: a ticket could have been granted but for Turn.MayEnter.
	barred bool
	// frozen: State has been said. Until Restore nobody enters and nothing
	// more is said, since the others go by what State announced.
	frozen bool
	// breathe is called between parts of what takes long.
	breathe func()
}

func newMachine(c locks.Config) *machine {
	m := &machine{tokens: tokens{c.Token}}
	if m.breathe = c.Breathe; m.breathe == nil {
		m.breathe = func() {}
	}
	m.install(c.View)
	return m
}

// install begins the epoch of v: nobody has given anything to anybody.
func (m *machine) install(v *locks.View) {
	m.peers = peers{view: v}
	m.tokens.begin(v.Epoch)
}

// Acquire adds a waiting ticket.
func (m *machine) Acquire(t locks.Ticket, out *locks.Turn) {
	m.mustBeNew(t.ID)
	mustBeSound(t.Mode, t.Range)
	s := m.stamp(t)
	s.Site = m.view.Self
	c := newClaim(t.ID, t.Mode, t.Range, t.Owner)
	c.pending = m.pendingOf(rank{try: t.Try, stamp: s, id: t.ID})
	m.tickets.add(c)
	m.waiting.add(c)
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
		t := newClaim(p.ID, p.Mode, p.Range, owner)
		m.tickets.add(t)
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
	t.over, t.moved = m.tick(), true
	m.waiting.insert(t)
	m.look(t)
}

// Resume grants what could not be granted because MayEnter was false.
func (m *machine) Resume(out *locks.Turn) { m.pump(out) }

// Expire gives back permissions that no ticket needs.
func (m *machine) Expire(out *locks.Turn) {
	if m.frozen {
		return
	}
	needed := m.held.written(func() {})
	for _, t := range m.waiting.queue {
		if t.mode == locks.Write {
			needed = needed.Add(t.rng)
		}
	}
	for _, p := range m.known {
		idle, more := p.release(needed)
		out.More = out.More || more
		if idle.Empty() {
			continue
		}
		out.Handover = true
		m.send(p, &release{idle, m.last}, out)
	}
	m.pump(out)
}

func (m *machine) send(p *peer, msg locks.Message, out *locks.Turn) {
	out.Send = append(out.Send, locks.Envelope{To: p.id, Msg: msg})
}

// forget removes a waiting ticket.
func (m *machine) forget(t *claim) {
	m.waiting.leave(t)
	delete(m.tickets, t.id)
	m.unblock(t)
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
