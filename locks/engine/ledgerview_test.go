package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A ledger is good as long as its process is a member, also if that died in the middle of
// a view change; and one of a successor names the view of its former self until it is a
// member itself.
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
		view := func(epoch locks.Epoch, members ...locks.NodeID) *locks.View {
			return &locks.View{Epoch: epoch, Self: "n0", Members: members}
		}
		for _, y := range []struct {
			v    *locks.View
			want error
		}{
			{view(x.Epoch, "n0", "n1"), nil},
			{view(x.Epoch+1, "n0", "n1", "n2"), nil},
			{view(x.Epoch+1, "n1"), ErrViewOver},
			{view(x.Epoch+1, "n0x", "n1"), ErrViewOver},
			{view(x.Epoch-1, "n0", "n1"), ErrViewOver},
		} {
			if err := x.Check(y.v); !errors.Is(err, y.want) {
				t.Errorf("in %+v: %v, want %v", y.v, err, y.want)
			}
		}
		b := c.killed("n0", "n0x")
		if y := named(b, "n0"); y != x {
			t.Errorf("the successor names %+v, want %+v", y, x)
		}
		c.view("n0x", "n1")
		time.Sleep(time.Second)
		if y := named(b, "n0x"); y.Epoch <= x.Epoch || y.Check(view(y.Epoch, "n0x", "n1")) != nil {
			t.Errorf("the successor is a member, and names %+v after %+v", y, x)
		}
		b.Engine.Expelled("a test")
		if _, err := ReadLedgerView(b.ledger); !errors.Is(err, ErrNoTenure) {
			t.Errorf("after the tenure: %v", err)
		}
	})
}
