package rw

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// tickets are those of this node, waiting and held.
type tickets map[locks.TicketID]*claim

// add makes the map when it is needed, as others in this package: where only others use a file
// it never is.
func (ts *tickets) add(c *claim) {
	if *ts == nil {
		*ts = tickets{}
	}
	(*ts)[c.id] = c
}

// Stamp is the stamp of a waiting ticket.
func (ts tickets) Stamp(id locks.TicketID) locks.Stamp { return ts.mustWait(id).stamp }

func sound(mode locks.Mode, r locks.Range) bool {
	return (mode == locks.Read || mode == locks.Write) && !r.Empty() && r.End <= locks.MaxOffset
}

func mustBeSound(mode locks.Mode, r locks.Range) {
	if !sound(mode, r) {
		panic(fmt.Sprintf("rw: a ticket for %v %v", mode, r))
	}
}

func (ts tickets) mustBeNew(id locks.TicketID) {
	if t := ts[id]; t != nil {
		panic(fmt.Sprintf("rw: ticket %d exists", id))
	}
}

func (ts tickets) mustWait(id locks.TicketID) *claim {
	t := ts[id]
	if t == nil || t.held {
		panic(fmt.Sprintf("rw: ticket %d does not wait", id))
	}
	return t
}

// mustReplace checks the preconditions of Replace, and returns the owner.
func (ts tickets) mustReplace(old []locks.TicketID, parts []locks.Part) locks.OwnerID {
	var owner locks.OwnerID
	var any, write []locks.Range
	var gone map[locks.TicketID]bool // nil for one, as mostly
	if len(old) > 1 {
		gone = make(map[locks.TicketID]bool, len(old))
	}
	for i, id := range old {
		t := ts[id]
		if t == nil || !t.held || i > 0 && t.owner != owner || gone[id] {
			panic(fmt.Sprintf("rw: tickets %v are not all held by one owner", old))
		}
		owner = t.owner
		if gone != nil {
			gone[id] = true
		}
		if len(parts) > 0 {
			any = append(any, t.rng)
			if t.mode == locks.Write {
				write = append(write, t.rng)
			}
		}
	}
	if len(parts) == 0 {
		return owner
	}
	held, written := locks.Collect(any), locks.Collect(write)
	taken := make([]locks.Range, 0, len(parts))
	ids := make(map[locks.TicketID]bool, len(parts))
	for _, p := range parts {
		mustBeSound(p.Mode, p.Range)
		if !gone[p.ID] && p.ID != old[0] {
			ts.mustBeNew(p.ID)
		}
		if ids[p.ID] || !held.Contains(p.Range) || p.Mode == locks.Write && !written.Contains(p.Range) {
			panic(fmt.Sprintf("rw: tickets %v cannot be made into %v", old, parts))
		}
		ids[p.ID] = true
		taken = append(taken, p.Range)
	}
	if !locks.Apart(taken) {
		panic(fmt.Sprintf("rw: tickets %v cannot be made into %v, which overlap", old, parts))
	}
	return owner
}
