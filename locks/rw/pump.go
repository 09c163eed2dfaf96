package rw

import (
	"dmxfs/locks"
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
		if q := m.lookOwed.pop(); q != nil {
			m.answer(q, out)
		} else if t := m.lookWaiting.pop(); t != nil {
			m.enter(t, out)
		} else if !m.lookChanged() {
			return
		}
	}
}

// look puts c on the agenda of this turn. While the machine is frozen there is
// none: Restore looks at everything.
func (m *machine) look(c *claim) {
	switch {
	case m.frozen:
	case c.from != nil:
		m.lookOwed.push(c)
	default:
		m.lookWaiting.push(c)
	}
}

// touch makes the waiting tickets for bytes of r look again.
func (m *machine) touch(r locks.Range) {
	for i := len(m.waiting) - 1; i >= 0; i-- { // backwards is cheap for the agenda
		if t := m.waiting[i]; t.rng.Overlaps(r) {
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

// grant says yes to a request: this node's permission goes, and a writer gets
// one. An ask that is open for the same bytes is crossed by it, unless the
// peer gets the grant before it answers.
func (m *machine) grant(q *claim, out *locks.Turn) {
	p := q.from
	if p.auth.Overlaps(q.rng) {
		out.Handover = true
		p.auth.Remove(q.rng)
	}
	if q.mode == locks.Write {
		p.given.Insert(q.rng)
	}
	for _, a := range p.asks {
		if a.mode == locks.Write && a.rng.Overlaps(q.rng) {
			a.crossed = append(a.crossed, crossing{q.tag, q.rng})
		}
	}
	m.settle(q)
	m.send(p, &reply{tag: q.tag, yes: true, token: m.token, open: p.open(q.rng)}, out)
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
	if t.try && m.hard(t) != nil {
		m.forget(t)
		out.Done = append(out.Done, locks.Outcome{Ticket: t.id})
		return
	}
	b := m.blocker(t)
	t.block(b)
	complete := m.obtain(t, b != nil, out)
	t.moved = false
	if complete && b == nil {
		if !out.MayEnter {
			m.barred = true
			return
		}
		m.leave(t)
		m.hold(t)
		m.token++
		out.Done = append(out.Done, locks.Outcome{Ticket: t.id, Granted: true, Token: m.token})
		m.withdraw(t, out)
	}
}

// obtain reports whether t has the permissions that it needs. If not, it asks
// for those for which no answer is under way.
func (m *machine) obtain(t *claim, blocked bool, out *locks.Turn) bool {
	complete, again := true, false
	var own *holds
	var req *request
	peers := m.peers
	if t.mode == locks.Write {
		peers = m.others()
	}
	for _, p := range peers {
		if !p.lacks(t.mode, t.rng) {
			continue
		}
		complete = false
		if blocked && (t.mode == locks.Read || t.try) {
			break
		}
		if own == nil && !t.try {
			own = m.holds(t)
		}
		if p.served(t, own) {
			continue
		}
		if req == nil {
			req = m.request(t, own)
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

// request is the next one of a ticket; it is the same for all peers.
func (m *machine) request(t *claim, own *holds) *request {
	t.round++
	r := &request{
		tag: tag{t.id, t.round}, sn: t.stamp.SN, n: t.stamp.N, over: t.over,
		mode: t.mode, rng: t.rng, try: t.try,
	}
	if own != nil {
		r.own = *own
	}
	return r
}

// withdraw cancels the open requests of a ticket that waits no more. Those of
// a try are answered in any case.
func (m *machine) withdraw(t *claim, out *locks.Turn) {
	if t.round == 0 || t.try || m.frozen {
		return
	}
	any := false
	for _, p := range m.peers {
		if a := p.withdraw(t.id); a != nil {
			any = true
			m.send(p, &cancel{a.tag()}, out)
		}
	}
	if any {
		m.touch(t.rng) // what leaned on them
	}
}

// blocker is a claim that blocks c, soft or hard, or nil; the same as before if
// it still does.
func (m *machine) blocker(c *claim) *claim {
	if u := c.blocker; u != nil && (u.held || m.queued(u, c)) {
		return u
	}
	if u := m.soft(c); u != nil {
		return u
	}
	return m.hard(c)
}

// queued reports whether c stands behind u, with which it conflicts. A wait
// does not stand behind what waits for its own owner.
func (m *machine) queued(u, c *claim) bool {
	return u.compare(&c.rank) < 0 && (c.try || !m.waitsFor(u, c))
}

// hard is a held ticket that conflicts with c. That is what locks mean.
func (m *machine) hard(c *claim) *claim {
	if u := obstacle(m.writes, c); u != nil || c.mode == locks.Read {
		return u
	}
	return obstacle(m.reads, c)
}

// soft is a claim that conflicts with c and goes before it: a waiting ticket
// or, where c is a ticket too, a request that is owed. That is only fairness,
// so it does not count when that claim itself waits for the owner of c: they
// would wait for each other. Among several it is the last, so that those who
// wait in a line look one after another as the line moves on.
func (m *machine) soft(c *claim) *claim {
	search := func(q queue) *claim {
		for i := q.find(c) - 1; i >= 0; i-- {
			if u := q[i]; u.conflict(c) && m.queued(u, c) {
				return u
			}
		}
		return nil
	}
	if u := search(m.waiting); u != nil || c.from != nil {
		return u
	}
	return search(m.owed)
}
