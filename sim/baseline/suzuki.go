package baseline

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// SuzukiKasami enters by a token: N messages, or none where the token is. The
// first node has it at the beginning.
var SuzukiKasami = Algorithm{Name: "suzuki-kasami", New: func(v *locks.View) Machine { return newSuzuki(v) }}

type suzuki struct {
	group
	asked            []uint64 // the paper's RN: the number of each node's latest request
	token            *suzukiToken
	requesting, inCS bool
	ticket           locks.TicketID
}

// suzukiToken is also the message that carries it: whoever sends it does not
// look at it again.
type suzukiToken struct {
	served []uint64 // the paper's LN: the number of each node's latest request that was served
	queue  []int    // the paper's Q
}

func newSuzuki(v *locks.View) *suzuki {
	g := newGroup(v)
	m := &suzuki{group: g, asked: make([]uint64, g.n())}
	if g.self == 0 {
		m.token = &suzukiToken{served: make([]uint64, g.n())}
	}
	return m
}

type suzukiRequest uint64

func (m suzukiRequest) Append(b []byte) []byte { return wire.Uint(wire.Bool(b, false), uint64(m)) }
func (m suzukiRequest) String() string         { return fmt.Sprintf("REQUEST %d", uint64(m)) }

func (m *suzukiToken) Append(b []byte) []byte {
	b = wire.Uint(wire.Bool(b, true), uint(len(m.served)))
	for _, n := range m.served {
		b = wire.Uint(b, n)
	}
	b = wire.Uint(b, uint(len(m.queue)))
	for _, k := range m.queue {
		b = wire.Uint(b, uint(k))
	}
	return b
}

func (m *suzukiToken) String() string { return fmt.Sprintf("TOKEN %v %v", m.served, m.queue) }

// Acquire asks all others for the token. A node has one ticket at a time.
func (m *suzuki) Acquire(t locks.Ticket, out *locks.Turn) {
	if m.requesting {
		panic(fmt.Sprintf("baseline: ticket %d while there is %d", t.ID, m.ticket))
	}
	m.requesting, m.ticket = true, t.ID
	if m.token != nil {
		m.enter(out)
		return
	}
	m.asked[m.self]++
	m.sendAll(suzukiRequest(m.asked[m.self]), out)
}

func (m *suzuki) enter(out *locks.Turn) {
	m.inCS = true
	grant(m.ticket, out)
}

// Receive takes the token, or gives it away if it is idle here.
func (m *suzuki) Receive(from locks.NodeID, msg locks.Message, out *locks.Turn) error {
	k, err := m.peer(from)
	if err != nil {
		return err
	}
	switch msg := msg.(type) {
	case suzukiRequest:
		m.asked[k] = max(m.asked[k], uint64(msg))
		if m.token != nil && !m.inCS && m.asked[k] > m.token.served[k] {
			m.give(k, out)
		}
	case *suzukiToken:
		if m.token != nil || !m.requesting {
			return fmt.Errorf("token where none is asked for")
		}
		m.token = msg
		m.enter(out)
	default:
		return fmt.Errorf("unknown message %v", msg)
	}
	return nil
}

func (m *suzuki) give(k int, out *locks.Turn) {
	m.send(k, m.token, out)
	m.token = nil
}

// Replace leaves the critical section and passes the token on. Those that have
// asked meanwhile are queued from the next node on, so that no number is
// favored.
func (m *suzuki) Replace(old []locks.TicketID, parts []locks.Part, out *locks.Turn) {
	mustRelease(old, parts, m.inCS, m.ticket)
	m.requesting, m.inCS = false, false
	t := m.token
	t.served[m.self] = m.asked[m.self]
	for d := 1; d < m.n(); d++ {
		if k := (m.self + d) % m.n(); m.asked[k] > t.served[k] && !slices.Contains(t.queue, k) {
			t.queue = append(t.queue, k)
		}
	}
	if len(t.queue) > 0 {
		k := t.queue[0]
		t.queue = t.queue[1:]
		m.give(k, out)
	}
}

func (m *suzuki) Expire(*locks.Turn) {}
