package exclusive

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
)

// Blockers are the held tickets of other owners; and, while the lock is not
// here, all others: a node does not know which of them has it.
func (m *machine) Blockers(id locks.TicketID, most int) (local []locks.TicketID, remote []locks.NodeID) {
	if w := m.mustWait(id); most > 0 && m.held > 0 && w.Owner != m.owner {
		for t := m.head; t != nil && len(local) < most; t = t.next {
			local = append(local, t.ID)
		}
		slices.Sort(local)
	}
	if m.open {
		remote = m.others()
	}
	return local, remote
}

// Suspects are all others, unless the lock is here.
func (m *machine) Suspects(locks.Mode, locks.Range) []locks.NodeID {
	if m.core.Has() {
		return nil
	}
	return m.others()
}

func (m *machine) others() []locks.NodeID {
	return slices.DeleteFunc(slices.Clone(m.site.view.Members), func(n locks.NodeID) bool { return n == m.site.view.Self })
}

// Stamp is the stamp of a waiting ticket.
func (m *machine) Stamp(id locks.TicketID) locks.Stamp { return m.mustWait(id).Stamp }

// Permitted is everything, while the lock is here and nobody uses it.
func (m *machine) Permitted(from uint64, _ int) (locks.Ranges, uint64) {
	if m.frozen || m.held > 0 || !m.core.Has() || m.site.N() == 1 || from > 0 {
		return nil, locks.MaxOffset
	}
	return locks.RangesOf(locks.Whole), locks.MaxOffset
}

// Wanted is Write if a peer waits for the lock while a ticket is held, else 0.
func (m *machine) Wanted() locks.Mode {
	if m.held > 0 && m.core.Wanted() {
		return locks.Write
	}
	return 0
}

// Idle reports whether the machine can be dropped. Its clock outlives it as
// the floor of tokens.
func (m *machine) Idle() bool { return !m.frozen && len(m.tickets) == 0 && m.core.Idle() }

// Token is the clock: at least the token of every grant that this node knows
// of, and every stamp.
func (m *machine) Token() locks.Token { return m.site.clock }

func (m *machine) sorted() []*ticket {
	ts := slices.Collect(maps.Values(m.tickets))
	slices.SortFunc(ts, func(a, b *ticket) int { return cmp.Compare(a.ID, b.ID) })
	return ts
}

// String is the whole state. Two machines of one node with the same string act
// alike; the exploration relies on it.
func (m *machine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s e%d clock=%v", m.site.view.Self, m.site.view.Epoch, m.site.clock)
	for _, f := range []struct {
		is   bool
		name string
	}{{m.open, "open"}, {m.served, "served"}, {m.barred, "barred"}, {m.frozen, "frozen"}} {
		if f.is {
			b.WriteString(" " + f.name)
		}
	}
	if m.last > 0 {
		fmt.Fprintf(&b, " last=%d/%d", m.last, m.arrived)
	}
	if m.asks > 0 {
		fmt.Fprintf(&b, " asks=%d denied=%d", m.asks, m.site.deny)
	}
	fmt.Fprintf(&b, "; %v", m.core)
	for _, t := range m.sorted() {
		fmt.Fprintf(&b, "; %v", t.Ticket)
		if t.held {
			b.WriteString(" held")
		}
		if m.last > 0 && t.arrival > m.last {
			b.WriteString(" late")
		}
		if t.ask > 0 {
			fmt.Fprintf(&b, " ask=%d", t.ask)
		}
	}
	return b.String()
}

// Check verifies the invariants of the package comment, that pump has left
// nothing undone, and those of the core.
func (m *machine) Check() error {
	held, waits := 0, map[locks.OwnerID]int{}
	for _, t := range m.tickets {
		if !t.held {
			waits[t.Owner]++
			continue
		}
		held++
		if t.Owner != m.owner {
			return fmt.Errorf("X1: ticket %d of owner %d is held beside those of owner %d", t.ID, t.Owner, m.owner)
		}
	}
	listed := 0
	for t := m.head; t != nil; t = t.next {
		if listed++; !t.held || listed > held || t.next != nil && t.next.prev != t {
			return fmt.Errorf("ticket %d is not in its place among the %d that are held", t.ID, held)
		}
	}
	switch {
	case listed != held:
		return fmt.Errorf("%d tickets are held, but %d are listed", held, listed)
	case held != m.held || m.site.used != (held > 0):
		return fmt.Errorf("%d tickets are held, but %d are counted", held, m.held)
	case held > 0 && !m.core.Has():
		return fmt.Errorf("X2: tickets are held, but the lock is not here")
	case len(m.waiting)+held != len(m.tickets):
		return fmt.Errorf("%d tickets wait and %d are held of %d", len(m.waiting), held, len(m.tickets))
	case !maps.Equal(waits, m.waits):
		return fmt.Errorf("%v wait by owner, not %v", waits, m.waits)
	case !slices.IsSortedFunc(m.waiting, before):
		return fmt.Errorf("the waiting tickets are out of order")
	}
	if !m.frozen {
		if err := m.checkPumped(); err != nil {
			return err
		}
	}
	return m.core.Check()
}

func (m *machine) checkPumped() error {
	has := m.core.Has()
	for _, t := range m.waiting {
		switch {
		case m.denied(t):
			return fmt.Errorf("ticket %d should have been denied", t.ID)
		case has && !m.barred && (m.held == 0 || t.Owner == m.owner):
			return fmt.Errorf("ticket %d could be granted", t.ID)
		case !has && t.Try && t.ask == 0:
			return fmt.Errorf("the try %d has not been asked about", t.ID)
		}
	}
	switch {
	case !has && m.open != (len(m.waiting) > 0):
		return fmt.Errorf("X3: %d tickets wait, but open is %v", len(m.waiting), m.open)
	case has && m.open:
		return fmt.Errorf("X3: a request is open, but the lock is here")
	case has && m.held == 0 && !m.barred && m.core.Wanted():
		return fmt.Errorf("X4: the lock is wanted and not used, but not given")
	}
	return nil
}
