package rw

import (
	"fmt"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// The first byte of a message.
const (
	kindRequest = 1 + iota
	kindReply
	kindCancel
	kindRelease
	kindClock
)

// maxClock is more than any clock can have come to, and far from an overflow
// of those that hear of it.
const maxClock = 1 << 60

// A tag names one request of a node for ever: tickets are never named twice,
// whatever is forgotten between two of them, and round counts the times that
// one ticket had to ask.
type tag struct {
	ticket locks.TicketID
	round  uint64
}

// request asks a peer for its permission: to write in the range without asking
// again or, by a reader, to have back the peer's own permission to write.
type request struct {
	tag
	sn, n uint64 // of the stamp; its site is the sender
	over  uint64
	mode  locks.Mode
	rng   locks.Range
	try   bool
	own   holds // what the asking owner holds; a try does not say
}

// reply answers the request with that tag.
type reply struct {
	tag
	yes bool
	// Of a yes: token is at least that of every grant that the sender knew
	// of; open are the requests of the sender for bytes of the same range
	// that the receiver had not answered, as far as the sender knew.
	token locks.Token
	open  []tag
}

// cancel withdraws a request. The reply to that request still comes: no by
// this, or what was on its way already.
type cancel struct {
	tag
}

// release gives back, unasked, permissions to write.
type release struct {
	ranges locks.Ranges
	token  locks.Token
}

// clock tells an overtaker that another one, of which it had not heard, is ahead
// of it.
type clock struct {
	tag
	high uint64
}

func (m *request) Append(b []byte) []byte {
	b = m.tag.append(append(b, kindRequest))
	b = wire.Uint(b, m.sn)
	b = wire.Uint(b, m.n)
	b = wire.Uint(b, m.over)
	b = wire.Uint(b, m.mode)
	b = wire.Range(b, m.rng)
	b = wire.Bool(b, m.try)
	b = wire.Ranges(b, m.own.any)
	return wire.Ranges(b, m.own.write)
}

func (m *reply) Append(b []byte) []byte {
	b = m.tag.append(append(b, kindReply))
	b = wire.Bool(b, m.yes)
	if !m.yes {
		return b
	}
	b = wire.Uint(b, m.token)
	b = wire.Uint(b, uint(len(m.open)))
	for _, t := range m.open {
		b = t.append(b)
	}
	return b
}

func (m *cancel) Append(b []byte) []byte { return m.tag.append(append(b, kindCancel)) }

func (m *release) Append(b []byte) []byte {
	return wire.Uint(wire.Ranges(append(b, kindRelease), m.ranges), m.token)
}

func (m *clock) Append(b []byte) []byte {
	return wire.Uint(m.tag.append(append(b, kindClock)), m.high)
}

func (t tag) append(b []byte) []byte { return wire.Uint(wire.Uint(b, t.ticket), t.round) }

// decode reads one message.
func decode(b []byte) (locks.Message, error) {
	r := wire.NewReader(b)
	var m locks.Message
	switch k := r.Uint(); k {
	case kindRequest:
		m = readRequest(r)
	case kindReply:
		m = readReply(r)
	case kindCancel:
		m = &cancel{readTag(r)}
	case kindRelease:
		m = readRelease(r)
	case kindClock:
		m = &clock{readTag(r), r.Max(maxClock)}
	default:
		r.Failf("kind %d", k)
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("rw: %w", err)
	}
	return m, nil
}

func readTag(r *wire.Reader) tag {
	t := locks.TicketID(r.Uint())
	return tag{t, r.Uint()}
}

func readRequest(r *wire.Reader) *request {
	m := &request{tag: readTag(r)}
	m.sn = r.Max(maxClock)
	m.n = r.Uint()
	m.over = r.Max(maxClock)
	m.mode = r.Mode()
	m.rng = r.Range()
	m.try = r.Bool()
	m.own.any = r.Ranges()
	m.own.write = r.Ranges()
	switch {
	case r.Err() != nil:
	case m.try && !m.own.any.Empty():
		r.Failf("a try says what its owner holds")
	case !m.own.any.Includes(m.own.write):
		r.Failf("%v is held for writing but not held", m.own.write)
	}
	return m
}

func readReply(r *wire.Reader) *reply {
	m := &reply{tag: readTag(r), yes: r.Bool()}
	if m.yes {
		m.token = locks.Token(r.Uint())
		for range r.Len(2) {
			m.open = append(m.open, readTag(r))
		}
	}
	return m
}

func readRelease(r *wire.Reader) *release {
	m := &release{ranges: r.Ranges()}
	m.token = locks.Token(r.Uint())
	if r.Err() == nil && m.ranges.Empty() {
		r.Failf("release of nothing")
	}
	return m
}

func (t tag) String() string { return fmt.Sprintf("%d.%d", t.ticket, t.round) }

func (m *request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "REQUEST %v %v %v stamp=%d.%d", m.tag, m.mode, m.rng, m.sn, m.n)
	if m.over != 0 {
		fmt.Fprintf(&b, " over=%d", m.over)
	}
	if m.try {
		b.WriteString(" try")
	}
	if !m.own.any.Empty() {
		fmt.Fprintf(&b, " own=%v", m.own)
	}
	return b.String()
}

func (m *reply) String() string {
	if !m.yes {
		return fmt.Sprintf("REPLY %v no", m.tag)
	}
	s := fmt.Sprintf("REPLY %v yes token=%v", m.tag, m.token)
	if len(m.open) > 0 {
		s += fmt.Sprintf(" open=%v", m.open)
	}
	return s
}

func (m *cancel) String() string { return fmt.Sprintf("CANCEL %v", m.tag) }

func (m *release) String() string { return fmt.Sprintf("RELEASE %v token=%v", m.ranges, m.token) }

func (m *clock) String() string { return fmt.Sprintf("CLOCK %v high=%d", m.tag, m.high) }

// String is as in "[0,4)(W[0,1))": what is held, and what of it for writing.
func (h holds) String() string {
	if h.write.Empty() {
		return h.any.String()
	}
	return fmt.Sprintf("%v(W%v)", h.any, h.write)
}
