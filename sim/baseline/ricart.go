package baseline

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// RicartAgrawala enters by the permission of all others: 2(N-1) messages, and
// requests are served in the order of their stamps.
var RicartAgrawala = Algorithm{Name: "ricart-agrawala", New: func(v *locks.View) Machine { return newRicart(v) }}

type ricart struct {
	group
	high   uint64 // the largest SN heard of
	my     stamp  // of the request, if requesting
	ticket locks.TicketID
	// requesting: a ticket waits or is held; inCS: it is held.
	requesting, inCS bool
	got              []bool // who has given permission
	missing          int
	owed             []stamp // whom to answer when this node leaves
}

func newRicart(v *locks.View) *ricart {
	g := newGroup(v)
	return &ricart{group: g, got: make([]bool, g.n()), owed: make([]stamp, g.n())}
}

type ricartMsg struct {
	reply bool
	s     stamp // of the request
}

func (m ricartMsg) Append(b []byte) []byte { return m.s.append(wire.Bool(b, m.reply)) }

func (m ricartMsg) String() string {
	if m.reply {
		return fmt.Sprintf("REPLY %v", m.s)
	}
	return fmt.Sprintf("REQUEST %v", m.s)
}

// Acquire asks all others. A node has one ticket at a time.
func (m *ricart) Acquire(t locks.Ticket, out *locks.Turn) {
	if m.requesting {
		panic(fmt.Sprintf("baseline: ticket %d while there is %d", t.ID, m.ticket))
	}
	m.high++
	m.my, m.ticket, m.requesting = stamp{sn: m.high, id: m.self}, t.ID, true
	clear(m.got)
	m.missing = m.n() - 1
	m.sendAll(ricartMsg{s: m.my}, out)
	m.enter(out)
}

func (m *ricart) enter(out *locks.Turn) {
	if m.missing == 0 {
		m.inCS = true
		grant(m.ticket, out)
	}
}

// Receive answers a request at once unless this node's own goes before it.
func (m *ricart) Receive(from locks.NodeID, msg locks.Message, out *locks.Turn) error {
	k, err := m.peer(from)
	if err != nil {
		return err
	}
	r, ok := msg.(ricartMsg)
	switch {
	case !ok:
		return fmt.Errorf("unknown message %v", msg)
	case !r.reply:
		m.high = max(m.high, r.s.sn)
		if m.requesting && m.my.before(r.s) {
			m.owed[k] = r.s
		} else {
			m.send(k, ricartMsg{reply: true, s: r.s}, out)
		}
	case !m.requesting || m.inCS || r.s != m.my || m.got[k]:
		return fmt.Errorf("reply %v to no request", r.s)
	default:
		m.got[k] = true
		m.missing--
		m.enter(out)
	}
	return nil
}

// Replace leaves the critical section.
func (m *ricart) Replace(old []locks.TicketID, parts []locks.Part, out *locks.Turn) {
	mustRelease(old, parts, m.inCS, m.ticket)
	m.requesting, m.inCS = false, false
	for k, s := range m.owed {
		if !s.none() {
			m.owed[k] = stamp{}
			m.send(k, ricartMsg{reply: true, s: s}, out)
		}
	}
}

func (m *ricart) Expire(*locks.Turn) {}
