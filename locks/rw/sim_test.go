package rw

import (
	"fmt"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// options tell the harness the order of this algorithm, and the invariants
// over two nodes.
var options = locktest.Options{Pair: pair, Before: goesBefore, Asks: asks, Overtakes: true, Spares: true, AsksHolders: true}

func goesBefore(a locks.Machine, ta locks.TicketID, b locks.Machine, tb locks.TicketID) bool {
	return a.(*machine).mustWait(ta).compare(&b.(*machine).mustWait(tb).rank) < 0
}

func asks(msg locks.Message) locks.TicketID {
	if r, ok := msg.(*request); ok {
		return r.ticket
	}
	return 0
}

// pair checks invariant I1: where a may write without asking b, b knows it;
// and with nothing under way b believes it nowhere else.
func pair(a, b locktest.Side, quiet bool) error {
	var auth, given locks.Ranges
	if m, ok := a.Machine.(*machine); ok {
		if p := m.find(b.ID); p != nil {
			auth = p.auth
		}
	}
	if m, ok := b.Machine.(*machine); ok {
		if p := m.find(a.ID); p != nil {
			given = p.given
		}
	}
	if !given.Includes(auth) {
		return fmt.Errorf("I1: %s may write %v, but %s has given %v", a.ID, auth, b.ID, given)
	}
	if quiet && !auth.Includes(given) {
		return fmt.Errorf("I1: %s has given %v, but %s knows of %v only", b.ID, given, a.ID, auth)
	}
	return nil
}

func TestSimulate(t *testing.T) { locktest.Simulate(t, Algorithm, options) }
