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
	again := uint64(0)
	if m.open && len(m.waiting) > 0 {
		again = m.core.SN()
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
