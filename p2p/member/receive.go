package member

import "cmp"

// received handles a message.
func (m *Machine) received(e Envelope) {
	if e.To != m.me {
		return // for another incarnation, or another peer
	}
	if m.st == StateOut && m.v.Has(e.From) {
		m.join.wordAt = m.now
	}
	if v, ok := e.Msg.(ViewMsg); ok {
		m.learn(v.View, false)
		return
	}
	if m.next != nil {
		return // between two epochs: all of it is sent again
	}
	switch c := cmp.Compare(e.Epoch, m.v.Epoch); {
	case c < 0:
		m.talkTo(e.From, m.p.Heartbeat/2, ViewMsg{m.v})
	case c > 0:
		m.disk.due = m.now
		m.talkTo(e.From, m.p.Tick, m.hello(false))
	}
	y := m.peers[e.From]
	if e.Epoch != m.v.Epoch && !(m.bug.answerOtherEpoch && y != nil) {
		return
	}
	switch msg := e.Msg.(type) {
	case HB:
		if y != nil {
			m.onHB(y, msg)
		}
	case Hello:
		if m.st == StateMember && !m.v.Has(e.From) {
			m.onHello(msg)
		}
	case Welcome:
		if m.st == StateOut {
			m.onWelcome(e.From)
		}
	case Refused:
		if m.st == StateOut && m.v.Has(e.From) {
			m.onRefused(e.From, msg)
		}
	}
}

// talkTo sends to a node that is at another epoch, at most once in a while:
// two that ask and answer each other must not make a storm.
func (m *Machine) talkTo(n Node, every int64, msg Message) {
	if v, ok := msg.(ViewMsg); ok && v.View.Epoch == 0 {
		return
	}
	if last, ok := m.talk[n]; ok && m.now-last < every {
		return
	}
	if len(m.talk) >= 4*MaxMembers {
		clear(m.talk)
	}
	m.talk[n] = m.now
	m.send(n, msg)
}
