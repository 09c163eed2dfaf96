package rcv

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// The first byte of a message.
const (
	kindRoaming = 1 + iota
	kindInform
	kindEnter
	kindQuestion
	kindHeld
	kindProbed
	kindClose
)

// Of the paper.
type (
	// roaming is a request on its way, the paper's RM. A probe does not ask
	// for a place; it asks, for the place that it finds, who uses the lock.
	roaming struct {
		inquiry
		probe     bool
		unvisited []int
		info
	}
	// inform is the paper's IM: next comes after before, of the receiver.
	inform struct {
		before, next exclusive.Request
		info
	}
	// enter is the paper's EM.
	enter struct {
		exclusive.Request
		info
	}
)

// Beyond the paper.
type (
	// question asks whether before, of the receiver, uses the lock.
	question struct {
		before exclusive.Request
		inquiry
	}
	// held tells the node of a request that the lock is used.
	held struct{ inquiry }
	// probed tells the node of a probe that it has ended.
	probed struct{ inquiry }
	// closeMsg is what is said about forgetting.
	closeMsg struct {
		verb verb
		id   uint64
	}
)

type verb uint8

const (
	verbClose verb = iota
	verbSealed
	verbBusy
	verbHurry
	verbReopen
	verbForget
)

func (v verb) String() string {
	return [...]string{"CLOSE", "SEALED", "BUSY", "HURRY", "REOPEN", "FORGET"}[v]
}

func (q inquiry) append(b []byte) []byte { return wire.Uint(q.Request.Append(b), q.ask) }

func readInquiry(r *wire.Reader) inquiry { return inquiry{exclusive.ReadRequest(r), r.Uint()} }

func (m *roaming) Append(b []byte) []byte {
	b = wire.Bool(m.inquiry.append(append(b, kindRoaming)), m.probe)
	b = wire.Uint(b, uint(len(m.unvisited)))
	for _, n := range m.unvisited {
		b = wire.Uint(b, uint(n))
	}
	return m.info.append(b)
}

func (m *inform) Append(b []byte) []byte {
	return m.info.append(m.next.Append(m.before.Append(append(b, kindInform))))
}

func (m *enter) Append(b []byte) []byte { return m.info.append(m.Request.Append(append(b, kindEnter))) }

func (m *question) Append(b []byte) []byte {
	return m.inquiry.append(m.before.Append(append(b, kindQuestion)))
}

func (m *held) Append(b []byte) []byte   { return m.inquiry.append(append(b, kindHeld)) }
func (m *probed) Append(b []byte) []byte { return m.inquiry.append(append(b, kindProbed)) }

func (m *closeMsg) Append(b []byte) []byte {
	return wire.Uint(wire.Uint(append(b, kindClose), m.verb), m.id)
}

func (s *info) append(b []byte) []byte {
	b = appendRequests(wire.Uint(b, s.start), s.list)
	b = wire.Uint(b, uint(len(s.rows)))
	for _, w := range s.rows {
		b = wire.Uint(wire.Uint(b, w.ordered), w.version)
		b = appendRequests(b, w.log)
	}
	return b
}

func appendRequests(b []byte, rs []exclusive.Request) []byte {
	b = wire.Uint(b, uint(len(rs)))
	for _, r := range rs {
		b = r.Append(b)
	}
	return b
}

// maxStart is more than there can be, and far from an overflow.
const maxStart = 1 << 60

func readInfo(r *wire.Reader) info {
	s := info{start: r.Max(maxStart), list: readRequests(r)}
	s.rows = make([]row, r.Len(3))
	for i := range s.rows {
		s.rows[i] = row{ordered: r.Uint(), version: r.Max(maxStart), log: readRequests(r)}
	}
	return s
}

func readRequests(r *wire.Reader) []exclusive.Request {
	n := r.Len(2)
	if n == 0 {
		return nil
	}
	rs := make([]exclusive.Request, n)
	for i := range rs {
		rs[i] = exclusive.ReadRequest(r)
	}
	return rs
}

func read(r *wire.Reader) locks.Message {
	switch k := r.Uint(); k {
	case kindRoaming:
		m := &roaming{inquiry: readInquiry(r), probe: r.Bool()}
		for range r.Len(1) {
			m.unvisited = append(m.unvisited, exclusive.ReadNode(r))
		}
		m.info = readInfo(r)
		if m.probe && m.ask == 0 {
			r.Failf("a probe without a number")
		}
		return m
	case kindInform:
		return &inform{exclusive.ReadRequest(r), exclusive.ReadRequest(r), readInfo(r)}
	case kindEnter:
		return &enter{exclusive.ReadRequest(r), readInfo(r)}
	case kindQuestion:
		m := &question{exclusive.ReadRequest(r), readInquiry(r)}
		if m.ask == 0 {
			r.Failf("a question without a number")
		}
		return m
	case kindHeld, kindProbed:
		q := readInquiry(r)
		switch {
		case q.ask == 0:
			r.Failf("an answer without a number")
		case k == kindProbed:
			return &probed{q}
		}
		return &held{q}
	case kindClose:
		return &closeMsg{verb(r.Max(uint64(verbForget))), r.Uint()}
	default:
		r.Failf("kind %d", k)
		return nil
	}
}

func (q inquiry) String() string {
	if q.ask == 0 {
		return q.Request.String()
	}
	return fmt.Sprintf("%v ask=%d", q.Request, q.ask)
}

func (m *roaming) String() string {
	name := "RM"
	if m.probe {
		name = "PROBE"
	}
	return fmt.Sprintf("%s %v UL=%v %v", name, m.inquiry, m.unvisited, m.info)
}

func (m *inform) String() string   { return fmt.Sprintf("IM %v next=%v %v", m.before, m.next, m.info) }
func (m *enter) String() string    { return fmt.Sprintf("EM %v %v", m.Request, m.info) }
func (m *question) String() string { return fmt.Sprintf("ASK %v for %v", m.before, m.inquiry) }
func (m *held) String() string     { return "HELD " + m.inquiry.String() }
func (m *probed) String() string   { return "PROBED " + m.inquiry.String() }
func (m *closeMsg) String() string { return fmt.Sprintf("%v %v", m.verb, locks.Token(m.id)) }
