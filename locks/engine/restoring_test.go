package engine

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// The machines of a new epoch begin one after the other. One that was made of what
// others told says nothing before its turn: else it asks twice, and is answered
// what it does not understand.
func TestNothingIsSaidBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		for _, f := range []string{"a", "f"} {
			r := req(locks.Flock, 1, locks.Write, locks.Whole)
			r.Key.File = f
			mustGrant(t, c.nodes["n0"].start(r))
		}
		c.add("n2")
		n := c.nodes["n2"]
		var asked atomic.Int32
		c.mu.Lock()
		c.twist = func(b []byte) []byte {
			f, err := decodeFrame(b, allAlgorithms, 3)
			if err == nil && f.kind == frameMachine && strings.HasPrefix(f.msg.String(), "REQUEST") {
				asked.Add(1)
			}
			return b
		}
		c.mu.Unlock()
		var p *pending
		n.Engine.mu.rest = func() time.Duration {
			if p != nil || n.phase != restoring {
				return 0
			}
			r := req(locks.Flock, 2, locks.Write, locks.Whole) // "a" has had its turn
			r.Key.File = "f"
			p = n.start(r)
			return time.Millisecond
		}
		c.view("n0", "n1", "n2")
		if p == nil {
			t.Fatal("all was done in one go")
		}
		time.Sleep(100 * time.Millisecond)
		if got := asked.Load(); got != 2 {
			t.Errorf("%d requests, want one to each of the others", got)
		}
		c.nodes["n0"].Unlock(locks.Key{File: "f", Class: locks.Flock}, 1, locks.Whole)
		mustGrant(t, p)
	})
}

// An epoch that ends while its machines begin, one after the other, is over: what
// has not begun waits for the next one.
func TestAnEpochEndsWhileItIsRestored(t *testing.T) {
	for _, end := range []string{"freeze", "expelled"} {
		t.Run(end, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { endWhileRestored(t, end) }) })
	}
}

func endWhileRestored(t *testing.T, end string) {
	c := newNet(t, 2)
	n := c.nodes["n0"]
	file := func(name string, owner int) *locks.Request {
		r := req(locks.Flock, owner, locks.Write, locks.Whole)
		r.Key.File = name
		return r
	}
	for _, f := range []string{"a", "f"} {
		mustGrant(t, n.start(file(f, 1)))
	}
	ended := make(chan struct{})
	n.Engine.mu.Lock()
	n.Engine.mu.rest = func() time.Duration {
		if n.phase != restoring {
			return 0
		}
		n.Engine.mu.rest = nil // "a" has had its turn
		go func() {
			if end == "freeze" {
				n.Freeze()
			} else {
				n.Engine.Expelled("a test")
			}
			close(ended)
		}()
		return time.Millisecond
	}
	n.Engine.mu.Unlock()
	c.view("n0", "n1")
	<-ended
	synctest.Wait()
	n.Engine.mu.Lock()
	got := n.phase
	n.Engine.mu.Unlock()
	if want := map[string]phase{"freeze": frozen, "expelled": outside}[end]; got != want {
		t.Fatalf("it is in phase %d, want %d", got, want)
	}
	p := n.start(file("f", 2))
	mustWait(t, p)
	c.view("n0", "n1")
	if end == "freeze" {
		n.Unlock(locks.Key{File: "f", Class: locks.Flock}, 1, locks.Whole)
	}
	mustGrant(t, p)
}
