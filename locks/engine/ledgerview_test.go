package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A ledger names the view of its process, and one of a successor that of its former self
// until it is a member itself; after the tenure there is none.
func TestTheViewOfALedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 2, true, nil)
		a := c.nodes["n0"]
		mustGrant(t, a.start(req(locks.Flock, 1, locks.Write, locks.Whole)))
		named := func(n *node, self locks.NodeID) LedgerView {
			t.Helper()
			x, err := ReadLedgerView(n.ledger)
			if err != nil || x.Self != self {
				t.Fatalf("%+v, %v, want one of %s", x, err, self)
			}
			return x
		}
		x := named(a, "n0")
		b := c.killed("n0", "n0x")
		if y := named(b, "n0"); y != x {
			t.Errorf("the successor names %+v, want %+v", y, x)
		}
		c.view("n0x", "n1")
		time.Sleep(time.Second)
		if y := named(b, "n0x"); y.Epoch <= x.Epoch {
			t.Errorf("the successor is a member, and names %+v after %+v", y, x)
		}
		b.Engine.Expelled("a test")
		if _, err := ReadLedgerView(b.ledger); !errors.Is(err, ErrNoTenure) {
			t.Errorf("after the tenure: %v", err)
		}
	})
}
