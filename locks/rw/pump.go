package rw

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// pump grants all that can be granted: first answers to peers, then tickets of
// this node, each in the order of rank.
//
// It is defined as a look at every request owed and at every waiting ticket,
// again and again until nothing changes. It only looks at those for which
// something has changed since: their blocker went (unblock), a permission or
// an ask that they need came or went (touch), their rank changed (Overtake),
// or what their owner holds changed (hold, unhold). Check compares with the
// definition.
func (m *machine) pump(out *locks.Turn) {
	if m.frozen {
		return
	}
	if out.MayEnter && m.barred {
		m.barred = false
		m.touch(locks.Whole)
	}
	for {
		if q := m.looks.owed.pop(); q != nil {
			m.answer(q, out)
		} else if t := m.looks.waiting.pop(); t != nil {
			m.enter(t, out)
		} else if !m.lookChanged() {
			return
		}
	}
}

// look puts c on the agenda of this turn. While the machine is frozen there is
// none: Restore looks at everything.
func (m *machine) look(c *claim) {
	if !m.frozen {
		m.looks.add(c)
	}
}

// touch makes the waiting tickets for bytes of r look again.
func (m *machine) touch(r locks.Range) {
	m.lookAt(func(t *claim) bool { return t.rng.Overlaps(r) })
}

// lookAt makes the waiting tickets look again that are concerned.
func (m *machine) lookAt(concerned func(*claim) bool) {
	for i := len(m.waiting.queue) - 1; i >= 0; i-- { // backwards is cheap for the agenda
		if t := m.waiting.queue[i]; concerned(t) {
			m.look(t)
		}
	}
}

// answer looks at a request that is owed an answer. A try gets one now.
func (m *machine) answer(q *claim, out *locks.Turn) {
	b := m.blocker(q)
	switch {
	case b == nil:
		m.grant(q, out)
	case q.try:
		m.settle(q)
		m.send(q.from, &reply{tag: q.tag}, out)
	default:
		q.block(b)
	}
}

// grant says yes to a request.
func (m *machine) grant(q *claim, out *locks.Turn) {
	p := q.from
	if p.give(q) {
		out.Handover = true
	}
	m.settle(q)
	m.send(p, &reply{tag: q.tag, yes: true, token: m.last, open: p.open(q.rng)}, out)
	m.touch(q.rng)
}

// settle removes a request that has its answer.
func (m *machine) settle(q *claim) {
	m.owed.remove(q)
	m.unblock(q)
}

// enter looks at a waiting ticket. A write asks for what it lacks although it
// is blocked: its place in the order is known early, and the answers come
// meanwhile. A read and a try do not: what blocks a read mostly brings the
// permission back by itself.
func (m *machine) enter(t *claim, out *locks.Turn) {
	if t.try && m.held.hard(t) != nil {
		m.forget(t)
		out.Done = append(out.Done, locks.Outcome{Ticket: t.id})
		return
	}
	b := m.blocker(t)
	t.block(b)
	complete := m.requestMissing(t, b != nil, out)
	t.moved = false
	if complete && b == nil {
		if !out.MayEnter {
			m.barred = true
			return
		}
		m.waiting.leave(t)
		m.hold(t)
		out.Done = append(out.Done, locks.Outcome{Ticket: t.id, Granted: true, Token: m.next()})
		m.withdraw(t, out)
		if p := t.rest(); p != nil {
			m.spare = p
		}
	}
}

// requestMissing reports whether t has the permissions that it needs. If not, it
// sends a REQUEST to each member whose permission is missing, but to those where
// an answer that serves t is under way.
func (m *machine) requestMissing(t *claim, blocked bool, out *locks.Turn) bool {
	complete, again := true, false
	var own *holds
	var req *request
	for _, p := range m.concerned(t.mode) {
		if !p.lacks(t.mode, t.rng) {
			continue
		}
		complete = false
		if blocked && (t.mode == locks.Read || t.try) {
			break
		}
		if own == nil && !t.try {
			own = m.held.by(t)
		}
		if p.served(t, own) {
			continue
		}
		if req == nil {
			req = t.request(own)
		}
		again = p.withdraw(t.id) != nil || again
		p.asks = append(p.asks, &ask{rank: t.rank, round: t.round, mode: t.mode, rng: t.rng, own: req.own, moved: t.moved})
		m.send(p, req, out)
	}
	if again {
		m.touch(t.rng) // what leaned on the earlier requests
	}
	return complete
}

// withdraw cancels the open requests of a ticket that waits no more. Those of
// a try are answered in any case.
func (m *machine) withdraw(t *claim, out *locks.Turn) {
	if t.round == 0 || t.try || m.frozen {
		return
	}
	any := false
	for _, p := range m.known {
		if a := p.withdraw(t.id); a != nil {
			any = true
			m.send(p, &cancel{a.tag()}, out)
		}
	}
	if any {
		m.touch(t.rng) // what leaned on them
	}
}

// hold puts t among the held tickets. What waits may now have to look again:
// a try that t denies, and what its owner waits for, see soft and request.
func (m *machine) hold(t *claim) {
	m.held.add(t)
	for _, u := range m.waiting.queue {
		if !u.try {
			break // tries are the first
		}
		if u.conflict(t) {
			m.look(u)
		}
	}
	m.changes(t.owner)
}

// unhold takes t from the held tickets.
func (m *machine) unhold(t *claim) {
	m.held.remove(t)
	m.changes(t.owner) // see maxHolds
}

// changes notes that o holds more than before, or less. All that waits for it
// looks again, but only when everything else has: when many tickets of an owner
// are granted at a time each of them changes what it holds.
func (m *machine) changes(o locks.OwnerID) {
	if m.waiting.owners[o] > 0 && !m.frozen {
		if m.looks.changed == nil {
			m.looks.changed = map[locks.OwnerID]struct{}{}
		}
		m.looks.changed[o] = struct{}{}
	}
}

// lookChanged has what waits for owners that changed look again, and reports
// whether there is anything.
func (m *machine) lookChanged() bool {
	if len(m.looks.changed) == 0 {
		return false
	}
	m.lookAt(func(t *claim) bool {
		_, ok := m.looks.changed[t.owner]
		return ok
	})
	clear(m.looks.changed)
	return len(m.looks.waiting) > 0
}

// checkPumped looks at every claim by the definition of pump.
func (m *machine) checkPumped() error {
	if m.frozen {
		return nil
	}
	if !m.looks.empty() {
		return fmt.Errorf("a turn ended with something to look at")
	}
	for _, q := range m.owed {
		if q.try {
			return fmt.Errorf("the try %v is not answered", &q.rank)
		}
		if !m.blocked(q) {
			return fmt.Errorf("%v of %s could be answered", q.tag, q.from.id)
		}
	}
	for _, t := range m.waiting.queue {
		if t.try && m.denied(t) {
			return fmt.Errorf("ticket %d should have been denied", t.id)
		}
		blocked, complete := m.blocked(t), true
		if t.mode == locks.Write && !m.all() {
			return fmt.Errorf("ticket %d has not asked those of whom nothing is known", t.id)
		}
		for _, p := range m.known {
			if !p.lacks(t.mode, t.rng) {
				continue
			}
			complete = false
			if blocked && (t.mode == locks.Read || t.try) {
				continue
			}
			if !p.served(t, m.held.by(t)) {
				return fmt.Errorf("ticket %d has not asked %s", t.id, p.id)
			}
		}
		if !blocked && complete && !m.barred {
			return fmt.Errorf("ticket %d could be granted", t.id)
		}
	}
	return nil
}
