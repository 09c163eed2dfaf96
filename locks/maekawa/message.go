package maekawa

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// The first byte of a message.
const (
	kindRequest = 1 + iota
	kindLocked
	kindFailed
	kindInquire
	kindRelinquish
	kindRelease
	kindWanted
	kindUsing
	kindDenied
)

// Of the paper. All name the request that they are about; grant is the number
// of a LOCKED.
type (
	request struct {
		exclusive.Request
		ask uint64 // to be told of the lock's use; 0 if not
	}
	locked struct {
		exclusive.Request
		grant  uint64
		wanted bool   // others wait already
		ask    uint64 // as in wanted
	}
	failed  struct{ exclusive.Request }
	inquire struct {
		exclusive.Request
		grant uint64
	}
	relinquish struct {
		exclusive.Request
		grant uint64
	}
	release struct{ exclusive.Request }
)

// Beyond the paper.
type (
	// wanted tells the owner of the vote that another request waits. When ask
	// is not 0 it is to say by using when it uses the lock.
	wanted struct {
		exclusive.Request
		ask uint64
	}
	using struct {
		exclusive.Request
		ask uint64
	}
	// denied tells who asked that the lock is used.
	denied struct {
		exclusive.Request
		ask uint64
	}
)

func (m *request) about() exclusive.Request    { return m.Request }
func (m *locked) about() exclusive.Request     { return m.Request }
func (m *failed) about() exclusive.Request     { return m.Request }
func (m *inquire) about() exclusive.Request    { return m.Request }
func (m *relinquish) about() exclusive.Request { return m.Request }
func (m *release) about() exclusive.Request    { return m.Request }
func (m *wanted) about() exclusive.Request     { return m.Request }
func (m *using) about() exclusive.Request      { return m.Request }
func (m *denied) about() exclusive.Request     { return m.Request }

func (m *request) Append(b []byte) []byte { return number(b, kindRequest, m.Request, m.ask) }
func (m *locked) Append(b []byte) []byte {
	return wire.Uint(wire.Bool(number(b, kindLocked, m.Request, m.grant), m.wanted), m.ask)
}
func (m *failed) Append(b []byte) []byte     { return m.Request.Append(append(b, kindFailed)) }
func (m *inquire) Append(b []byte) []byte    { return number(b, kindInquire, m.Request, m.grant) }
func (m *relinquish) Append(b []byte) []byte { return number(b, kindRelinquish, m.Request, m.grant) }
func (m *release) Append(b []byte) []byte    { return m.Request.Append(append(b, kindRelease)) }
func (m *wanted) Append(b []byte) []byte     { return number(b, kindWanted, m.Request, m.ask) }
func (m *using) Append(b []byte) []byte      { return number(b, kindUsing, m.Request, m.ask) }
func (m *denied) Append(b []byte) []byte     { return number(b, kindDenied, m.Request, m.ask) }

func number(b []byte, kind byte, r exclusive.Request, n uint64) []byte {
	return wire.Uint(r.Append(append(b, kind)), n)
}

func read(r *wire.Reader) locks.Message {
	k, q := r.Uint(), exclusive.ReadRequest(r)
	switch k {
	case kindRequest:
		return &request{q, r.Uint()}
	case kindLocked:
		return &locked{q, positive(r), r.Bool(), r.Uint()}
	case kindFailed:
		return &failed{q}
	case kindInquire:
		return &inquire{q, positive(r)}
	case kindRelinquish:
		return &relinquish{q, positive(r)}
	case kindRelease:
		return &release{q}
	case kindWanted:
		return &wanted{q, r.Uint()}
	case kindUsing:
		return &using{q, positive(r)}
	case kindDenied:
		return &denied{q, positive(r)}
	}
	r.Failf("kind %d", k)
	return nil
}

// positive reads a number that is not 0.
func positive(r *wire.Reader) uint64 {
	n := r.Uint()
	if n == 0 {
		r.Failf("a number is 0")
	}
	return n
}

func asking(ask uint64) string {
	if ask == 0 {
		return ""
	}
	return fmt.Sprintf(" ask=%v", locks.Token(ask))
}

func (m *request) String() string {
	s := fmt.Sprintf("REQUEST %v", m.Request)
	if m.ask > 0 {
		s += fmt.Sprintf(" ask=%d", m.ask)
	}
	return s
}

func (m *locked) String() string {
	s := fmt.Sprintf("LOCKED %v #%v", m.Request, locks.Token(m.grant))
	if m.wanted {
		s += " wanted"
	}
	return s + asking(m.ask)
}
func (m *failed) String() string { return fmt.Sprintf("FAILED %v", m.Request) }
func (m *inquire) String() string {
	return fmt.Sprintf("INQUIRE %v #%v", m.Request, locks.Token(m.grant))
}
func (m *relinquish) String() string {
	return fmt.Sprintf("RELINQUISH %v #%v", m.Request, locks.Token(m.grant))
}
func (m *release) String() string { return fmt.Sprintf("RELEASE %v", m.Request) }
func (m *wanted) String() string  { return fmt.Sprintf("WANTED %v%s", m.Request, asking(m.ask)) }
func (m *using) String() string   { return fmt.Sprintf("USING %v%s", m.Request, asking(m.ask)) }
func (m *denied) String() string  { return fmt.Sprintf("DENIED %v ask=%d", m.Request, m.ask) }
