package rw

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
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
	w := m.held.written(m.breathe)
	return wire.RangesInParts(wire.Uint(nil, m.high), w, m.breathe)
}

// Restore begins a new epoch: a member may write where it announced that it
// writes. This holds for the caller, too: what was released since its State
// was sent is still a permission, since the others count on that.
func (m *machine) Restore(v *locks.View, states map[locks.NodeID][]byte, out *locks.Turn) error {
	high, writes, err := m.readStates(v, states)
	if err != nil {
		return fmt.Errorf("rw: epoch %d: %w", v.Epoch, err)
	}
	var auth []locks.Ranges // of each other member, since each is changed in place
	if !writes[v.Self].Empty() {
		auth = make([]locks.Ranges, len(v.Members)-1)
		for i := range auth {
			auth[i] = slices.Clone(writes[v.Self])
			m.breathe()
		}
	}
	for _, p := range m.known {
		if !p.given.Empty() {
			out.Stale = true
		}
	}
	for _, q := range m.owed {
		m.unblock(q)
	}
	m.owed = nil
	m.install(v)
	m.hear(high)
	for _, t := range m.waiting.queue {
		t.stamp.Site = v.Self // it was another one when they were inherited
	}
	if len(auth) > 0 {
		for i, p := range m.others() {
			p.auth = auth[i]
		}
	}
	for _, id := range v.Members {
		if id != v.Self && !writes[id].Empty() {
			m.peer(id).given = writes[id]
		}
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
		writes[id] = r.RangesInParts(m.breathe)
		if err := r.End(); err != nil {
			return 0, nil, fmt.Errorf("state of %s: %w", id, err)
		}
	}
	for i, a := range v.Members {
		for _, b := range v.Members[:i] {
			if x := m.meet(writes[a], writes[b]); !x.Empty() {
				return 0, nil, fmt.Errorf("both %s and %s write %v", b, a, x)
			}
		}
	}
	for _, id := range v.Members {
		if err := m.checkState(id, id == v.Self, writes[id]); err != nil {
			return 0, nil, err
		}
	}
	for id := range states {
		if v.Index(id) < 0 {
			return 0, nil, fmt.Errorf("state of %s, which is not a member", id)
		}
	}
	return high, writes, nil
}

// meet is something that is both in a and in b; it is empty if nothing is.
func (m *machine) meet(a, b locks.Ranges) locks.Range {
	if len(a) > len(b) {
		a, b = b, a
	}
	for part := range slices.Chunk(a, partSize) {
		for _, r := range part {
			if b.Overlaps(r) {
				return r
			}
		}
		m.breathe()
	}
	return locks.Range{}
}

// checkState is an error if what id writes contradicts what is held here.
func (m *machine) checkState(id locks.NodeID, self bool, writes locks.Ranges) error {
	if self {
		for ts := range m.held.writers(m.breathe) {
			for _, t := range ts {
				if !writes.Contains(t.rng) {
					return fmt.Errorf("%v is written here, but that was not announced", t.rng)
				}
			}
		}
		return nil
	}
	from := &pending{from: &peer{}}
	for part := range slices.Chunk(writes, partSize) {
		for _, r := range part {
			c := &claim{mode: locks.Write, rng: r, pending: from}
			if t := m.held.hard(c); t != nil {
				return fmt.Errorf("%s writes %v, but ticket %d holds %v here", id, r, t.id, t.rng)
			}
		}
		m.breathe()
	}
	return nil
}

// A node can leave all that it knows nothing of to another one beforehand: see
// [locks.Delegable]. The machines then begin where they would come to if the
// delegate had asked for everything, had it, and had released it.

// Delegated makes this node one that may write everywhere.
func (m *machine) Delegated() {
	m.mustBeUntouched()
	for _, p := range m.others() {
		p.auth.Insert(locks.Whole)
	}
}

// Delegate lets p write everywhere.
func (m *machine) Delegate(id locks.NodeID) {
	m.mustBeUntouched()
	m.peer(id).given.Insert(locks.Whole)
}

func (m *machine) mustBeUntouched() {
	if m.frozen || m.known != nil || len(m.tickets) > 0 {
		panic("rw: a machine that is not new")
	}
}

// Legacy adds the clock.
func (m *machine) Legacy(b []byte) []byte { return wire.Uint(wire.Uint(b, m.high), m.count) }

// Inherit makes a new machine one that has these tickets. What it kept for reuse
// is given up by not being said, as at every new epoch.
func (m *machine) Inherit(legacy []byte, held, waiting []locks.Ticket) error {
	if m.known != nil || len(m.tickets) > 0 {
		panic("rw: a machine that is not new")
	}
	r := wire.NewReader(legacy)
	m.high, m.count = r.Max(maxClock), r.Uint()
	if err := r.End(); err != nil {
		return fmt.Errorf("rw: the clock: %w", err)
	}
	m.frozen = true
	for _, x := range held {
		t, err := m.inherit(x)
		if err != nil {
			return err
		}
		if u := m.held.hard(t); u != nil {
			return fmt.Errorf("rw: tickets %d and %d cannot both be held", u.id, t.id)
		}
		m.held.add(t)
	}
	for _, x := range waiting {
		t, err := m.inherit(x)
		if err != nil {
			return err
		}
		t.pending = &pending{rank: rank{try: x.Try, stamp: m.stamp(x), id: x.ID}}
		t.stamp.Site = m.view.Self
		m.waiting.add(t)
	}
	return nil
}

func (m *machine) inherit(x locks.Ticket) (*claim, error) {
	if m.tickets[x.ID] != nil || !sound(x.Mode, x.Range) {
		return nil, fmt.Errorf("rw: ticket %d, for %v %v, is there twice or makes no sense", x.ID, x.Mode, x.Range)
	}
	t := newClaim(x.ID, x.Mode, x.Range, x.Owner)
	m.tickets.add(t)
	return t, nil
}
