package ring

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// The first byte of a message.
const (
	kindToken = 1 + iota
	kindQuestion
	kindHeld
)

// token is a request on its way round the ring. When ask is not 0, it is a
// question as well.
type token struct{ inquiry }

// question goes where a token that is held cannot go any more.
type question struct{ inquiry }

// held tells the owner of a request that the lock is used.
type held struct{ inquiry }

func (q inquiry) append(b []byte, kind byte) []byte {
	return wire.Uint(q.Request.Append(append(b, kind)), q.ask)
}

func (m *token) Append(b []byte) []byte    { return m.append(b, kindToken) }
func (m *question) Append(b []byte) []byte { return m.append(b, kindQuestion) }
func (m *held) Append(b []byte) []byte     { return m.append(b, kindHeld) }

func (q inquiry) String() string {
	if q.ask == 0 {
		return q.Request.String()
	}
	return fmt.Sprintf("%v ask=%d", q.Request, q.ask)
}

func (m *token) String() string    { return "TOKEN " + m.inquiry.String() }
func (m *question) String() string { return "ASK " + m.inquiry.String() }
func (m *held) String() string     { return "HELD " + m.inquiry.String() }

func read(r *wire.Reader) locks.Message {
	k := r.Uint()
	q := inquiry{exclusive.ReadRequest(r), r.Uint()}
	switch {
	case k == kindToken:
		return &token{q}
	case k != kindQuestion && k != kindHeld:
		r.Failf("kind %d", k)
	case q.ask == 0:
		r.Failf("a question without a number")
	case k == kindQuestion:
		return &question{q}
	}
	return &held{q}
}
