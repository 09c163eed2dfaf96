package rw

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
)

// Blockers are the held tickets that conflict, and the members that were asked
// and whose permission is missing. A read that is blocked at home has not
// asked abroad: the second list is then empty.
func (m *machine) Blockers(id locks.TicketID, most int) (local []locks.TicketID, remote []locks.NodeID) {
	t := m.mustWait(id)
	add := func(u *claim) bool {
		local = append(local, u.id)
		return len(local) < most
	}
	if most > 0 && obstacles(m.held.writes, t, add) && t.mode == locks.Write {
		obstacles(m.held.reads, t, add)
	}
	own := m.held.by(t)
	for _, p := range m.known {
		if p.lacks(t.mode, t.rng) && p.served(t, own) {
			remote = append(remote, p.id)
		}
	}
	return local, remote
}

// Permitted is where this node could write without asking anybody, beyond what is
// written. It is empty when there is nobody to ask.
func (m *machine) Permitted(from uint64, most int) (permitted locks.Ranges, next uint64) {
	if len(m.known) == 0 {
		return nil, locks.MaxOffset
	}
	for range most {
		r, ok := m.owned(from)
		if !ok {
			return permitted, locks.MaxOffset
		}
		from = r.End
		overlapping(m.held.writes, byMode, r, func(t *claim) bool {
			r.End, from = max(t.rng.Start, r.Start), t.rng.End
			return false
		})
		if !r.Empty() {
			permitted = extend(permitted, r)
		}
		if from >= locks.MaxOffset {
			break
		}
	}
	return permitted, from
}

// Idle reports whether nothing is lost by dropping the machine but its clock
// and its count. They decide only who goes first: a request may pass others,
// once, that were heard of before the drop.
func (m *machine) Idle() bool {
	if m.frozen || len(m.tickets) > 0 { // what is owed waits for a ticket
		return false
	}
	for _, p := range m.known {
		if !p.auth.Empty() || !p.given.Empty() || len(p.asks) > 0 {
			return false
		}
	}
	return true
}

// Redundant reports whether one that is made anew with Delegated, or with
// Delegate(to) if to is not empty, does as well.
func (m *machine) Redundant(to locks.NodeID) bool {
	if m.frozen || len(m.tickets) > 0 {
		return false
	}
	for _, p := range m.known {
		if len(p.asks) > 0 || !p.given.Empty() && p.id != to || !p.auth.Empty() && to != "" {
			return false
		}
	}
	return true
}

// Check verifies what one node can see of the invariants in doc.go, that the
// indexes agree with what they index, and that pump has left nothing undone.
// All of it by the definitions, in the plainest way.
func (m *machine) Check() error {
	return errors.Join(m.peers.check(m.tickets), m.claims.check(), m.checkPumped())
}

// String is the whole state. Two machines of one node with the same string act
// alike; the exploration relies on it.
func (m *machine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s e%d high=%d count=%d token=%v", m.view.Self, m.view.Epoch, m.high, m.count, m.last)
	if m.barred {
		b.WriteString(" barred")
	}
	if m.frozen {
		b.WriteString(" frozen")
	}
	for _, id := range slices.Sorted(maps.Keys(m.tickets)) {
		t := m.tickets[id]
		fmt.Fprintf(&b, "; %d %v %v o%d", id, t.mode, t.rng, t.owner)
		if t.held {
			b.WriteString(" held")
		} else {
			fmt.Fprintf(&b, " waits %v round=%d", &t.rank, t.round)
			if t.bids > 0 {
				fmt.Fprintf(&b, " bids=%d", t.bids)
			}
		}
	}
	for _, q := range m.owed {
		fmt.Fprintf(&b, "; owes %s %v %v %v %v own=%v", q.from.id, q.tag, q.mode, q.rng, &q.rank, q.own)
	}
	for _, p := range m.known {
		if p.auth.Empty() && p.given.Empty() && len(p.asks) == 0 {
			continue
		}
		fmt.Fprintf(&b, "; %s auth=%v given=%v", p.id, p.auth, p.given)
		for _, a := range p.asks {
			fmt.Fprintf(&b, " ask %v %v %v %v own=%v", a.tag(), a.mode, a.rng, &a.rank, a.own)
			if a.withdrawn {
				b.WriteString(" withdrawn")
			}
			if a.moved {
				b.WriteString(" moved")
			}
			for _, c := range a.crossed {
				fmt.Fprintf(&b, " crossed %v %v", c.tag, c.rng)
			}
		}
	}
	return b.String()
}

// String is as in "try 3.n0.2" or "over=5 3.n0.2".
func (a *rank) String() string {
	var b strings.Builder
	if a.try {
		b.WriteString("try ")
	}
	if a.over > 0 {
		fmt.Fprintf(&b, "over=%d ", a.over)
	}
	b.WriteString(a.stamp.String())
	return b.String()
}
