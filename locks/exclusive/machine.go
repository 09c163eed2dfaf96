package exclusive

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// Options are how a lock is used by its node.
type Options struct {
	// Name is the one of the algorithm, for errors.
	Name string
	// Eager: a lock is given back as soon as its ticket is released, as in the
	// papers. Otherwise it is kept until a member wants it.
	Eager bool
}

// machine is one node's part of an algorithm for one key: the tickets of this
// node in front of a core.
type machine struct {
	opt  Options
	site Site
	core Core

	tickets map[locks.TicketID]*ticket
	waiting []*ticket             // in the order in which they are served, see before
	waits   map[locks.OwnerID]int // of waiting, by owner
	held    int                   // tickets, all of one owner
	head    *ticket               // the list of them, the latest first
	owner   locks.OwnerID
	arrived uint64 // tickets, ever

	// open: the core has been asked for the lock and does not have it.
	open bool
	// again is the stamp of the request that was open in the machine whose place
	// this one has taken; 0 if there was none, and after Restore.
	again uint64
	asks  uint64 // numbers of Core.Ask
	// last is the last ticket, by arrival, that is served before the lock is
	// given to a member that wants it; 0 while nobody does.
	last uint64
	// served: a ticket has been granted since the lock came.
	served bool
	// barred: a ticket could have been granted but for Turn.MayEnter.
	barred bool
	// frozen: State has been said, and Restore not yet called.
	frozen bool
}

type ticket struct {
	locks.Ticket
	held       bool
	next, prev *ticket // in the list of held ones
	arrival    uint64
	ask        uint64 // of a try: by which number it was asked for it, 0 if not yet
}

// New makes a machine of the core that make makes.
func New(c locks.Config, opt Options, make func(*Site) Core) locks.Machine {
	m := &machine{opt: opt, tickets: map[locks.TicketID]*ticket{}, waits: map[locks.OwnerID]int{}}
	m.site.clock, m.site.seed = c.Token, c.Seed
	m.install(c.View)
	m.core = make(&m.site)
	return m
}

// CoreOf is the core of a machine that [New] made. It is for tests of the
// algorithms.
func CoreOf(m locks.Machine) Core { return m.(*machine).core }

// install begins the epoch of v.
func (m *machine) install(v *locks.View) {
	m.site.view, m.site.self = v, v.Index(v.Self)
	m.site.clock = max(m.site.clock, locks.TokenFloor(v.Epoch))
}

// turn begins a turn.
func (m *machine) turn(out *locks.Turn) { m.site.out = out }

// Acquire adds a waiting ticket. A stamp that it brings counts at this node
// only: stamps of nodes are never used twice.
func (m *machine) Acquire(t locks.Ticket, out *locks.Turn) {
	m.mustBeNew(t.ID)
	m.mustBeSound(t.Mode, t.Range)
	m.turn(out)
	if t.Stamp.IsZero() {
		t.Stamp = locks.Stamp{SN: m.site.Tick()}
	}
	t.Stamp.Site = m.site.view.Self
	w := &ticket{Ticket: t}
	m.tickets[t.ID] = w
	m.enqueue(w)
	m.pump()
}

// enqueue puts a ticket on the queue.
func (m *machine) enqueue(t *ticket) {
	m.arrived++
	t.arrival = m.arrived
	i, _ := slices.BinarySearchFunc(m.waiting, t, before)
	m.waiting = slices.Insert(m.waiting, i, t)
	m.waits[t.Owner]++
}

// before is the order in which waiting tickets are served: tries first, so that
// they have their answer, then by stamp.
func before(a, b *ticket) int {
	switch {
	case a.Try != b.Try && a.Try:
		return -1
	case a.Try != b.Try:
		return 1
	}
	return cmp.Or(a.Stamp.Compare(b.Stamp), cmp.Compare(a.ID, b.ID))
}

// Cancel takes a waiting ticket back, and the node's request if it was the
// last that waited.
func (m *machine) Cancel(id locks.TicketID, out *locks.Turn) {
	t := m.mustWait(id)
	m.turn(out)
	m.forget(t)
	m.pump()
}

// forget removes a waiting ticket.
func (m *machine) forget(t *ticket) {
	m.leave(t)
	delete(m.tickets, t.ID)
}

// leave takes a ticket off the queue.
func (m *machine) leave(t *ticket) {
	i, ok := slices.BinarySearchFunc(m.waiting, t, before)
	if !ok || m.waiting[i] != t {
		m.panicf("ticket %d is not where its stamp belongs", t.ID)
	}
	m.waiting = slices.Delete(m.waiting, i, i+1)
	if m.waits[t.Owner]--; m.waits[t.Owner] == 0 {
		delete(m.waits, t.Owner)
	}
}

// tries are the waiting tickets that are tries.
func (m *machine) tries() []*ticket {
	n := 0
	for n < len(m.waiting) && m.waiting[n].Try {
		n++
	}
	return m.waiting[:n]
}

// Replace rewrites held tickets. Whatever their range and mode, what is left
// of them keeps the whole lock.
func (m *machine) Replace(old []locks.TicketID, parts []locks.Part, out *locks.Turn) {
	owner := m.mustReplace(old, parts)
	m.turn(out)
	for _, id := range old {
		m.unhold(m.tickets[id])
		delete(m.tickets, id)
	}
	for _, p := range parts {
		t := &ticket{Ticket: locks.Ticket{ID: p.ID, Owner: owner, Mode: p.Mode, Range: p.Range}}
		m.tickets[p.ID] = t
		m.hold(t)
	}
	m.site.used = m.held > 0
	m.pump()
}

func (m *machine) hold(t *ticket) {
	t.held = true
	m.held++
	if t.next = m.head; t.next != nil {
		t.next.prev = t
	}
	m.head = t
}

func (m *machine) unhold(t *ticket) {
	t.held = false
	m.held--
	if t.next != nil {
		t.next.prev = t.prev
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		m.head = t.next
	}
	t.next, t.prev = nil, nil
}

// Overtake does nothing. All that waits for an exclusive lock waits for its
// holder first, so a queue closes no cycle that the holder does not close.
func (m *machine) Overtake(id locks.TicketID, _ *locks.Turn) { m.mustWait(id) }

// Expire gives back the lock if no ticket needs it.
func (m *machine) Expire(out *locks.Turn) {
	m.turn(out)
	if !m.frozen && len(m.tickets) == 0 {
		m.core.Expire()
		m.pump()
	}
}

// Resume grants what could not be granted because MayEnter was false.
func (m *machine) Resume(out *locks.Turn) {
	m.turn(out)
	m.pump()
}

// Receive handles a message of a member's machine.
func (m *machine) Receive(from locks.NodeID, msg locks.Message, out *locks.Turn) error {
	if err := m.receive(from, msg, out); err != nil {
		return fmt.Errorf("%s: %v from %s: %w", m.opt.Name, msg, from, err)
	}
	m.pump()
	return nil
}

func (m *machine) receive(from locks.NodeID, msg locks.Message, out *locks.Turn) error {
	i, epoch := m.site.view.Index(from), m.site.view.Epoch
	w, ok := msg.(*message)
	switch {
	case i < 0 || i == m.site.self:
		return fmt.Errorf("not another member of epoch %d", epoch)
	case m.frozen:
		return fmt.Errorf("epoch %d is over", epoch)
	case !ok:
		return errAlien
	case w.clock < locks.TokenFloor(epoch) || w.clock >= locks.TokenFloor(epoch+1):
		return fmt.Errorf("clock %v is not of epoch %d", w.clock, epoch)
	}
	m.turn(out)
	was := m.site.clock
	m.site.clock = max(was, w.clock)
	err := m.core.Receive(i, w.body)
	if err != nil {
		m.site.clock = was
	}
	return err
}
