package rw

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// stamps are the clock of a node: it stamps tickets.
type stamps struct {
	high  uint64 // the largest SN or over seen: the H of the paper's stamps
	count uint64 // of the tickets stamped here
}

// stamp is that of t, but for the site. A new one is stamped: a write with the
// next SN, and a read with the SN that the next write will have, as the paper's
// reads between two writes share one.
func (s *stamps) stamp(t locks.Ticket) locks.Stamp {
	if !t.Stamp.IsZero() {
		s.high, s.count = max(s.high, t.Stamp.SN), max(s.count, t.Stamp.N)
		return t.Stamp
	}
	s.count++
	is := locks.Stamp{SN: s.high + 1, N: s.count}
	if t.Mode == locks.Write {
		s.high = is.SN
	}
	return is
}

// hear is told of the clock of another node.
func (s *stamps) hear(high uint64) { s.high = max(s.high, high) }

// tick is a clock that is later than all that were heard of.
func (s *stamps) tick() uint64 {
	s.high++
	return s.high
}

// tokens are the fencing tokens of a key: each grant has a greater one than all
// that are known here.
type tokens struct{ last locks.Token }

// begin begins an epoch, whose tokens are greater than all before.
func (t *tokens) begin(e locks.Epoch) { t.last = max(t.last, locks.TokenFloor(e)) }

// learn notes a token that a peer knows of, in epoch e.
func (t *tokens) learn(x locks.Token, e locks.Epoch) error {
	if x < locks.TokenFloor(e) || x >= locks.TokenFloor(e+1) {
		return fmt.Errorf("token %v is not of epoch %d", x, e)
	}
	t.last = max(t.last, x)
	return nil
}

func (t *tokens) next() locks.Token {
	t.last++
	return t.last
}

// Token is at least the token of every grant that this node knows of.
func (t *tokens) Token() locks.Token { return t.last }
