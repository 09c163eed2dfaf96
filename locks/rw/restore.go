package rw

import (
	"fmt"
	"slices"

	"dmxfs/locks"
	"dmxfs/locks/wire"
)

// State is what tickets of this node write, and its clock. Readers are silent
// at a new epoch as they were before, and waiting tickets ask again. All
// permissions that no held ticket uses are given up by being left out.
//
// What the others do from now on rests on this, so until Restore the machine
// grants nothing and sends nothing.
func (m *machine) State() []byte {
	m.frozen = true
	if len(m.tickets) == 0 {
		return nil
	}
	return wire.Ranges(wire.Uint(nil, m.high), m.written())
}

// Restore begins a new epoch: a member may write where it announced that it
// writes. This holds for the caller, too: what was released since its State
// was sent is still a permission, since the others count on that.
func (m *machine) Restore(v *locks.View, states map[locks.NodeID][]byte, out *locks.Turn) error {
	high, writes, err := m.readStates(v, states)
	if err != nil {
		return fmt.Errorf("rw: epoch %d: %w", v.Epoch, err)
	}
	for _, p := range m.peers {
		if !p.given.Empty() {
			out.Stale = true
		}
	}
	for _, q := range m.owed {
		m.unblock(q)
	}
	m.owed = nil
	m.install(v)
	m.high = max(m.high, high)
	for _, p := range m.others() {
		p.auth, p.given = slices.Clone(writes[v.Self]), writes[p.id]
	}
	m.frozen, m.barred = false, false
	m.touch(locks.Whole)
	m.pump(out)
	return nil
}

// readStates is the clock and the writes that were announced. Members that
// claim the same bytes, or that claim what is held here, are an error: to go
// on from there would be to go on with two holders.
func (m *machine) readStates(v *locks.View, states map[locks.NodeID][]byte) (uint64, map[locks.NodeID]locks.Ranges, error) {
	var high uint64
	writes := make(map[locks.NodeID]locks.Ranges, len(states))
	for _, id := range v.Members {
		b := states[id]
		if len(b) == 0 {
			continue
		}
		r := wire.NewReader(b)
		high = max(high, r.Max(maxClock))
		writes[id] = r.Ranges()
		if err := r.End(); err != nil {
			return 0, nil, fmt.Errorf("state of %s: %w", id, err)
		}
	}
	for i, a := range v.Members {
		for _, b := range v.Members[:i] {
			if writes[a].Meets(writes[b]) {
				return 0, nil, fmt.Errorf("%s writes %v and %s writes %v", b, writes[b], a, writes[a])
			}
		}
	}
	for _, id := range v.Members {
		if id == v.Self {
			if w := m.written(); !writes[id].Includes(w) {
				return 0, nil, fmt.Errorf("%v is written here, but %v was announced", w, writes[id])
			}
			continue
		}
		for _, r := range writes[id] {
			c := &claim{mode: locks.Write, rng: r, from: &peer{}}
			if t := m.hard(c); t != nil {
				return 0, nil, fmt.Errorf("%s writes %v, but ticket %d holds %v here", id, r, t.id, t.rng)
			}
		}
	}
	for id := range states {
		if v.Index(id) < 0 {
			return 0, nil, fmt.Errorf("state of %s, which is not a member", id)
		}
	}
	return high, writes, nil
}
