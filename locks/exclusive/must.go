package exclusive

import (
	"errors"
	"fmt"
	"slices"

	"dmxfs/locks"
)

var errAlien = errors.New("a message of another algorithm")

func (m *machine) panicf(format string, args ...any) {
	panic(m.opt.Name + ": " + fmt.Sprintf(format, args...))
}

func (m *machine) mustBeSound(mode locks.Mode, r locks.Range) {
	if mode != locks.Read && mode != locks.Write || r.Empty() || r.End > locks.MaxOffset {
		m.panicf("a ticket for %v %v", mode, r)
	}
}

func (m *machine) mustBeNew(id locks.TicketID) {
	if m.tickets[id] != nil {
		m.panicf("ticket %d exists", id)
	}
}

func (m *machine) mustWait(id locks.TicketID) *ticket {
	t := m.tickets[id]
	if t == nil || t.held {
		m.panicf("ticket %d does not wait", id)
	}
	return t
}

// mustReplace checks the preconditions of Replace, and returns the owner.
func (m *machine) mustReplace(old []locks.TicketID, parts []locks.Part) locks.OwnerID {
	var any, write, taken locks.Ranges
	for i, id := range old {
		t := m.tickets[id]
		if t == nil || !t.held || slices.Contains(old[:i], id) {
			m.panicf("tickets %v are not all held", old)
		}
		any = any.Add(t.Range)
		if t.Mode == locks.Write {
			write = write.Add(t.Range)
		}
	}
	for i, p := range parts {
		m.mustBeSound(p.Mode, p.Range)
		if !slices.Contains(old, p.ID) {
			m.mustBeNew(p.ID)
		}
		same := func(o locks.Part) bool { return o.ID == p.ID }
		if slices.ContainsFunc(parts[:i], same) || taken.Overlaps(p.Range) ||
			!any.Contains(p.Range) || p.Mode == locks.Write && !write.Contains(p.Range) {
			m.panicf("tickets %v cannot be made into %v", old, parts)
		}
		taken = taken.Add(p.Range)
	}
	return m.owner
}
