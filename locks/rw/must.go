package rw

import (
	"fmt"
	"slices"

	"dmxfs/locks"
)

func mustBeSound(mode locks.Mode, r locks.Range) {
	if mode != locks.Read && mode != locks.Write || r.Empty() || r.End > locks.MaxOffset {
		panic(fmt.Sprintf("rw: a ticket for %v %v", mode, r))
	}
}

func (m *machine) mustBeNew(id locks.TicketID) {
	if t := m.tickets[id]; t != nil {
		panic(fmt.Sprintf("rw: ticket %d exists", id))
	}
}

func (m *machine) mustBeUntouched() {
	if m.frozen || m.peers != nil || len(m.tickets) > 0 {
		panic("rw: a machine that is not new")
	}
}

func (m *machine) mustWait(id locks.TicketID) *claim {
	t := m.tickets[id]
	if t == nil || t.held {
		panic(fmt.Sprintf("rw: ticket %d does not wait", id))
	}
	return t
}

// mustReplace checks the preconditions of Replace, and returns the owner.
func (m *machine) mustReplace(old []locks.TicketID, parts []locks.Part) locks.OwnerID {
	var owner locks.OwnerID
	for i, id := range old {
		t := m.tickets[id]
		if t == nil || !t.held || i > 0 && t.owner != owner || slices.Contains(old[:i], id) {
			panic(fmt.Sprintf("rw: tickets %v are not all held by one owner", old))
		}
		owner = t.owner
	}
	if len(parts) == 0 {
		return owner
	}
	var any, write, taken locks.Ranges
	for _, id := range old {
		t := m.tickets[id]
		any = any.Add(t.rng)
		if t.mode == locks.Write {
			write = write.Add(t.rng)
		}
	}
	for i, p := range parts {
		mustBeSound(p.Mode, p.Range)
		if !slices.Contains(old, p.ID) {
			m.mustBeNew(p.ID)
		}
		same := func(o locks.Part) bool { return o.ID == p.ID }
		if slices.ContainsFunc(parts[:i], same) || taken.Overlaps(p.Range) ||
			!any.Contains(p.Range) || p.Mode == locks.Write && !write.Contains(p.Range) {
			panic(fmt.Sprintf("rw: tickets %v cannot be made into %v", old, parts))
		}
		taken = taken.Add(p.Range)
	}
	return owner
}
