package rw

import (
	"fmt"
	"slices"

	"dmxfs/locks"
)

// Receive handles a message of a member's machine. What does not follow the
// protocol is an error, and is found before anything is changed.
func (m *machine) Receive(from locks.NodeID, msg locks.Message, out *locks.Turn) error {
	p := m.peer(from)
	if p == nil {
		return fmt.Errorf("rw: %v from %s, which is not another member of epoch %d", msg, from, m.view.Epoch)
	}
	if m.frozen {
		return fmt.Errorf("rw: %v from %s after the end of epoch %d", msg, from, m.view.Epoch)
	}
	var err error
	switch msg := msg.(type) {
	case *request:
		err = m.onRequest(p, msg)
	case *reply:
		err = m.onReply(p, msg, out)
	case *cancel:
		m.onCancel(p, msg, out)
	case *release:
		err = m.onRelease(p, msg, out)
	default:
		err = fmt.Errorf("a message of another algorithm")
	}
	if err != nil {
		return fmt.Errorf("rw: %v from %s: %w", msg, from, err)
	}
	m.pump(out)
	return nil
}

func (m *machine) onRequest(p *peer, msg *request) error {
	if m.owing(p, msg.tag) != nil {
		return fmt.Errorf("that request is owed an answer already")
	}
	m.high = max(m.high, msg.sn, msg.over)
	stamp := locks.Stamp{SN: msg.sn, Site: p.id, N: msg.n}
	q := &claim{
		rank: rank{try: msg.try, over: msg.over, stamp: stamp, id: msg.ticket},
		mode: msg.mode, rng: msg.rng,
		from: p, tag: msg.tag, own: msg.own,
	}
	m.owed.insert(q)
	m.look(q)
	return nil
}

// owing is a request of p that is owed an answer.
func (m *machine) owing(p *peer, t tag) *claim {
	for _, q := range m.owed {
		if q.from == p && q.tag == t {
			return q
		}
	}
	return nil
}

func (m *machine) onReply(p *peer, msg *reply, out *locks.Turn) error {
	i := slices.IndexFunc(p.asks, func(a *ask) bool { return a.tag() == msg.tag })
	if i < 0 {
		return fmt.Errorf("no request of that tag is open")
	}
	a := p.asks[i]
	if !msg.yes {
		if !a.try && !a.withdrawn {
			return fmt.Errorf("the request is neither a try nor withdrawn")
		}
		p.asks = slices.Delete(p.asks, i, i+1)
		if t := m.tickets[a.id]; t != nil && a.try && !t.held {
			m.forget(t)
			out.Done = append(out.Done, locks.Outcome{Ticket: t.id})
		}
		return nil
	}
	if err := m.learn(msg.token); err != nil {
		return err
	}
	p.asks = slices.Delete(p.asks, i, i+1)
	m.gain(p, a, msg.open, out)
	m.touch(a.rng)
	return nil
}

// gain takes what a yes to a gives: the peer's own permission is gone, and a
// writer has one of the peer. But what this node granted to requests that the
// peer still had open, both have given and neither has: the answers crossed.
// The peer finds the same, so it does not have it either.
func (m *machine) gain(p *peer, a *ask, open []tag, out *locks.Turn) {
	if p.given.Overlaps(a.rng) {
		out.Stale = true
		p.given.Remove(a.rng)
	}
	if a.mode == locks.Write {
		gain := locks.RangesOf(a.rng)
		for _, c := range a.crossed {
			if slices.Contains(open, c.tag) {
				gain = gain.Sub(c.rng)
			}
		}
		for _, r := range gain {
			p.auth.Insert(r)
		}
	}
	// A grant that the peer is known to have got crosses nothing any more.
	for _, b := range p.asks {
		b.crossed = slices.DeleteFunc(b.crossed, func(c crossing) bool {
			return c.rng.Overlaps(a.rng) && !slices.Contains(open, c.tag)
		})
	}
}

func (m *machine) onCancel(p *peer, msg *cancel, out *locks.Turn) {
	if q := m.owing(p, msg.tag); q != nil { // else the answer is on its way
		m.settle(q)
		m.send(p, &reply{tag: msg.tag}, out)
	}
}

func (m *machine) onRelease(p *peer, msg *release, out *locks.Turn) error {
	if !p.given.Includes(msg.ranges) {
		return fmt.Errorf("it was given only %v", p.given)
	}
	if err := m.learn(msg.token); err != nil {
		return err
	}
	out.Stale = true
	p.given = p.given.Minus(msg.ranges)
	for i := len(m.waiting) - 1; i >= 0; i-- {
		if t := m.waiting[i]; msg.ranges.Overlaps(t.rng) {
			m.look(t)
		}
	}
	return nil
}

// learn notes a token that a peer knows of.
func (m *machine) learn(t locks.Token) error {
	if t < locks.TokenFloor(m.view.Epoch) || t >= locks.TokenFloor(m.view.Epoch+1) {
		return fmt.Errorf("token %v is not of epoch %d", t, m.view.Epoch)
	}
	m.token = max(m.token, t)
	return nil
}
