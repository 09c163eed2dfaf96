package rw

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
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
		err = m.onRequest(p, msg, out)
	case *reply:
		err = m.onReply(p, msg, out)
	case *cancel:
		m.onCancel(p, msg, out)
	case *clock:
		err = m.onClock(p, msg)
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

func (m *machine) onRequest(p *peer, msg *request, out *locks.Turn) error {
	if old := m.owing(p, msg.ticket); old != nil {
		if old.try || msg.try || msg.round <= old.tag.round {
			return fmt.Errorf("request %v is owed an answer", old.tag)
		}
		m.settle(old) // by this one, which says more or goes before it
		m.send(p, &reply{tag: old.tag}, out)
	}
	m.hear(max(msg.sn, msg.over))
	stamp := locks.Stamp{SN: msg.sn, Site: p.id, N: msg.n}
	q := &claim{id: msg.ticket, mode: msg.mode, rng: msg.rng, pending: &pending{
		rank: rank{try: msg.try, over: msg.over, stamp: stamp, id: msg.ticket},
		from: p, tag: msg.tag, own: msg.own,
	}}
	m.owed.insert(q)
	m.look(q)
	m.pump(out)
	if u := q.blocker; q.over > 0 && u != nil && !u.held && !u.try {
		m.send(p, &clock{q.tag, m.high}, out)
	}
	return nil
}

// onClock raises the clock of who has overtaken, and is behind another one of
// whom it had not heard: that one had the permission of this node already, so
// it did not tell. The ticket overtakes again, or it would be behind for ever:
// each of the two would overtake from the clock that it knows, and the other
// one's is ahead. That a request was only repeated, since something overtook,
// is no reason: both would then take turns without end.
func (m *machine) onClock(p *peer, msg *clock) error {
	a := p.ask(msg.tag)
	if a == nil {
		return errNotOpen
	}
	m.hear(msg.high)
	t := m.tickets[a.id]
	if t != nil && !t.held && a.moved && a.over == t.over && t.over <= msg.high && t.bids > 0 {
		t.bids--
		m.overtake(t)
	}
	return nil
}

var errNotOpen = errors.New("no request with that tag is open")

func (m *machine) onReply(p *peer, msg *reply, out *locks.Turn) error {
	a := p.ask(msg.tag)
	if a == nil {
		return errNotOpen
	}
	if !msg.yes {
		if !a.try && !a.withdrawn {
			return fmt.Errorf("the request is neither a try nor withdrawn")
		}
		p.close(a)
		if t := m.tickets[a.id]; t != nil && a.try && !t.held {
			m.forget(t)
			out.Done = append(out.Done, locks.Outcome{Ticket: t.id})
		}
		return nil
	}
	if err := m.learn(msg.token, m.view.Epoch); err != nil {
		return err
	}
	p.close(a)
	if p.gain(a, msg.open) {
		out.Stale = true
	}
	m.touch(a.rng)
	return nil
}

func (m *machine) onCancel(p *peer, msg *cancel, out *locks.Turn) {
	if q := m.owing(p, msg.ticket); q != nil && q.tag == msg.tag { // else the answer is on its way
		m.settle(q)
		m.send(p, &reply{tag: msg.tag}, out)
	}
}

func (m *machine) onRelease(p *peer, msg *release, out *locks.Turn) error {
	if !p.given.Includes(msg.ranges) {
		return fmt.Errorf("it was given only %v", p.given)
	}
	if err := m.learn(msg.token, m.view.Epoch); err != nil {
		return err
	}
	out.Stale = true
	p.back(msg.ranges)
	m.lookAt(func(t *claim) bool { return msg.ranges.Overlaps(t.rng) })
	return nil
}

// Returned takes back what was given to p, as a RELEASE of it does.
func (m *machine) Returned(id locks.NodeID, token locks.Token, out *locks.Turn) error {
	for _, p := range m.known {
		if p.id == id && !p.given.Empty() {
			return m.Receive(id, &release{slices.Clone(p.given), token}, out)
		}
	}
	return m.learn(token, m.view.Epoch)
}
