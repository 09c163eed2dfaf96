package exclusive

import (
	"errors"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

var errAlien = errors.New("a message of another algorithm")

func (m *machine) panicf(format string, args ...any) {
	panic(m.opt.Name + ": " + fmt.Sprintf(format, args...))
}

func sound(mode locks.Mode, r locks.Range) bool {
	return (mode == locks.Read || mode == locks.Write) && !r.Empty() && r.End <= locks.MaxOffset
}

func (m *machine) mustBeSound(mode locks.Mode, r locks.Range) {
	if !sound(mode, r) {
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
	var any, write []locks.Range
	var gone map[locks.TicketID]bool // nil for one, as mostly
	if len(old) > 1 {
		gone = make(map[locks.TicketID]bool, len(old))
	}
	for _, id := range old {
		t := m.tickets[id]
		if t == nil || !t.held || gone[id] {
			m.panicf("tickets %v are not all held", old)
		}
		if gone != nil {
			gone[id] = true
		}
		if len(parts) > 0 {
			any = append(any, t.Range)
			if t.Mode == locks.Write {
				write = append(write, t.Range)
			}
		}
	}
	if len(parts) == 0 {
		return m.owner
	}
	held, written := locks.Collect(any), locks.Collect(write)
	taken := make([]locks.Range, 0, len(parts))
	ids := make(map[locks.TicketID]bool, len(parts))
	for _, p := range parts {
		m.mustBeSound(p.Mode, p.Range)
		if !gone[p.ID] && p.ID != old[0] {
			m.mustBeNew(p.ID)
		}
		if ids[p.ID] || !held.Contains(p.Range) || p.Mode == locks.Write && !written.Contains(p.Range) {
			m.panicf("tickets %v cannot be made into %v", old, parts)
		}
		ids[p.ID] = true
		taken = append(taken, p.Range)
	}
	if !locks.Apart(taken) {
		m.panicf("tickets %v cannot be made into %v, which overlap", old, parts)
	}
	return m.owner
}
