package exclusive

import (
	"errors"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// State is the request by which this node has the lock, if a ticket is held.
func (m *machine) State() []byte {
	m.frozen = true
	if m.held == 0 {
		return nil
	}
	return wire.Uint(nil, m.core.SN())
}

// Restore begins a new epoch: who said that it holds the lock has it, and all
// others that wait ask again, with the stamps that they had.
func (m *machine) Restore(v *locks.View, states map[locks.NodeID][]byte, out *locks.Turn) error {
	holder, sn, err := m.readStates(v, states)
	if err != nil {
		return fmt.Errorf("%s: epoch %d: %w", m.opt.Name, v.Epoch, err)
	}
	m.turn(out)
	again := m.again
	if m.open {
		again = m.core.SN()
	}
	if m.again = 0; len(m.waiting) == 0 {
		again = 0
	}
	m.install(v)
	m.core.Restore(holder, sn)
	m.frozen, m.open, m.last, m.served = false, false, 0, holder == m.site.self
	for _, t := range m.waiting {
		t.ask = 0
	}
	if again > 0 && !m.core.Has() {
		m.request(again)
	}
	m.pump()
	return nil
}

// readStates finds who has the lock. Two that have it, or one beside a ticket
// that is held here, are an error: to go on would be to go on with two holders.
func (m *machine) readStates(v *locks.View, states map[locks.NodeID][]byte) (holder int, sn uint64, err error) {
	holder = -1
	for id := range states {
		if v.Index(id) < 0 {
			return 0, 0, fmt.Errorf("state of %s, which is not a member", id)
		}
	}
	for i, id := range v.Members {
		b := states[id]
		if len(b) == 0 {
			continue
		}
		r := wire.NewReader(b)
		n := r.Uint()
		switch err := r.End(); {
		case err != nil:
			return 0, 0, fmt.Errorf("state of %s: %w", id, err)
		case n == 0 || n >= uint64(locks.TokenFloor(v.Epoch)):
			return 0, 0, fmt.Errorf("state of %s: stamp %v is not of an earlier epoch", id, locks.Token(n))
		case holder >= 0:
			return 0, 0, fmt.Errorf("both %s and %s hold the lock", v.Members[holder], id)
		}
		holder, sn = i, n
	}
	if m.held > 0 && (holder < 0 || v.Members[holder] != v.Self) {
		return 0, 0, errors.New("the lock is held here, but that was not announced")
	}
	return holder, sn, nil
}

// Legacy adds the clock, and the stamp of the request by which this node has the
// lock or waits for it; 0 if it does neither for a ticket.
func (m *machine) Legacy(b []byte) []byte {
	sn := m.again
	if m.held > 0 || m.open {
		sn = m.core.SN()
	}
	return wire.Uint(wire.Uint(b, uint64(m.site.clock)), sn)
}

// Inherit makes a new machine one that has these tickets: its node has the lock
// if one is held, and otherwise asks for it again, with the stamp that it had.
func (m *machine) Inherit(legacy []byte, held, waiting []locks.Ticket) error {
	if len(m.tickets) > 0 {
		m.panicf("a machine that is not new")
	}
	r := wire.NewReader(legacy)
	clock, sn := locks.Token(r.Uint()), r.Uint()
	switch err := r.End(); {
	case err != nil:
		return fmt.Errorf("%s: the clock: %w", m.opt.Name, err)
	case locks.Token(sn) > clock || clock >= locks.TokenFloor(m.site.view.Epoch+1) || len(held) > 0 && sn == 0:
		return fmt.Errorf("%s: a clock of %v, and a request of %v, with %d tickets that are held at epoch %d", m.opt.Name, clock, locks.Token(sn), len(held), m.site.view.Epoch)
	}
	m.site.clock = max(m.site.clock, clock)
	m.turn(&locks.Turn{})
	m.frozen = true
	for _, x := range held {
		t, err := m.inherit(x)
		if err != nil {
			return err
		}
		if m.held > 0 && m.owner != t.Owner {
			return fmt.Errorf("%s: it is held by two owners, %d and %d", m.opt.Name, m.owner, t.Owner)
		}
		m.owner = t.Owner
		m.hold(t)
	}
	if m.site.used = m.held > 0; m.site.used {
		m.core.Restore(m.site.self, sn)
	} else {
		m.again = sn
	}
	for _, x := range waiting {
		t, err := m.inherit(x)
		if err != nil {
			return err
		}
		m.enqueue(t)
	}
	return nil
}

func (m *machine) inherit(x locks.Ticket) (*ticket, error) {
	if m.tickets[x.ID] != nil || !sound(x.Mode, x.Range) {
		return nil, fmt.Errorf("%s: ticket %d, for %v %v, is there twice or makes no sense", m.opt.Name, x.ID, x.Mode, x.Range)
	}
	x.Stamp.Site = m.site.view.Self
	t := &ticket{Ticket: x}
	m.tickets[t.ID] = t
	return t, nil
}
