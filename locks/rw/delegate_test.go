package rw

import (
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
)

// exchange carries what is to be sent, and what comes of it, until all is
// quiet.
func exchange(t *testing.T, ms map[locks.NodeID]*machine, from locks.NodeID, out *locks.Turn) {
	t.Helper()
	for _, env := range out.Send {
		var next locks.Turn
		next.Reset(true)
		if err := ms[env.To].Receive(from, env.Msg, &next); err != nil {
			t.Fatal(err)
		}
		exchange(t, ms, env.To, &next)
	}
}

func trioMachines() map[locks.NodeID]*machine {
	ms := map[locks.NodeID]*machine{}
	for _, id := range trio {
		ms[id] = newMachine(locks.Config{View: &locks.View{Epoch: 1, Self: id, Members: trio}})
	}
	return ms
}

// Machines begin as a delegate's and its delegators' where they would come to
// by messages. So what was explored of those holds for these.
func TestDelegatedIsAsIfAskedFor(t *testing.T) {
	asked, given := trioMachines(), trioMachines()
	var out locks.Turn
	out.Reset(true)
	n0 := asked["n0"]
	n0.Acquire(locks.Ticket{ID: 1, Owner: 1, Mode: locks.Write, Range: locks.Whole}, &out)
	exchange(t, asked, "n0", &out)
	out.Reset(true)
	n0.Replace([]locks.TicketID{1}, nil, &out)
	given["n0"].Delegated()
	given["n1"].Delegate("n0")
	given["n2"].Delegate("n0")
	for _, id := range trio {
		// All but the clock, which says who is first and may be forgotten.
		_, a, _ := strings.Cut(asked[id].String(), ";")
		_, b, _ := strings.Cut(given[id].String(), ";")
		if a != b || a == "" {
			t.Errorf("%s: asked for %q, delegated %q", id, a, b)
		}
		if err := given[id].Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestRedundantAndKeeps(t *testing.T) {
	ms := trioMachines()
	n0, n1 := ms["n0"], ms["n1"]
	n0.Delegated()
	n1.Delegate("n0")
	ms["n2"].Delegate("n0")
	if !n0.Redundant("") || !n1.Redundant("n0") || n1.Redundant("n2") || n1.Redundant("") || n0.Redundant("n1") {
		t.Error("Redundant is wrong of new machines")
	}
	if !n0.Keeps("n1") || n1.Keeps("n0") || n1.Keeps("n2") {
		t.Error("Keeps is wrong of new machines")
	}
	var out locks.Turn
	out.Reset(true)
	n0.Acquire(locks.Ticket{ID: 1, Owner: 1, Mode: locks.Write, Range: locks.Whole}, &out)
	if len(out.Send) > 0 || len(out.Done) != 1 || !out.Done[0].Granted {
		t.Fatalf("the delegate sends %v, and gets %v", out.Send, out.Done)
	}
	if n0.Redundant("") {
		t.Error("redundant, with a lock")
	}
	// A reader at n1 waits for it; then n1 is no delegator any more.
	out.Reset(true)
	n1.Acquire(locks.Ticket{ID: 2, Owner: 2, Mode: locks.Read, Range: locks.Whole}, &out)
	exchange(t, ms, "n1", &out)
	if len(out.Done) > 0 || n1.Redundant("n0") || !n1.Keeps("n0") {
		t.Errorf("the reader: %v", n1)
	}
	out.Reset(true)
	if err := n1.Returned("n0", locks.TokenFloor(2), &out); err == nil || len(out.Done) > 0 {
		t.Error("a token of a later epoch is taken")
	}
	// That n0 keeps nothing is not true here, but n1 has to believe it.
	out.Reset(true)
	if err := n1.Returned("n0", locks.TokenFloor(1)+7, &out); err != nil || len(out.Done) != 1 || !out.Stale {
		t.Errorf("%v, %+v", err, out)
	}
	if out.Done[0].Token <= locks.TokenFloor(1)+7 {
		t.Errorf("token %v after %v", out.Done[0].Token, locks.TokenFloor(1)+7)
	}
}

func TestDelegatingAMachineThatIsNotNew(t *testing.T) {
	ms := trioMachines()
	var out locks.Turn
	out.Reset(true)
	ms["n0"].Acquire(locks.Ticket{ID: 1, Owner: 1, Mode: locks.Read, Range: locks.Whole}, &out)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	ms["n0"].Delegated()
}
