package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A record of the end of a lock says how long its program had it: from the grant, not
// from the request, and not for a part of it or for one that only waited.
func TestHeldFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		first := req(locks.Posix, 1, locks.Write, locks.Range{Start: 0, End: 100})
		mustGrant(t, a.start(first))
		p := b.start(req(locks.Posix, 2, locks.Write, first.Range))
		time.Sleep(3 * time.Second)
		a.Unlock(first.Key, first.Owner, locks.Range{Start: 0, End: 10})
		time.Sleep(2 * time.Second)
		a.Unlock(first.Key, first.Owner, first.Range)
		mustGrant(t, p)
		time.Sleep(time.Second)
		b.Engine.Expelled("a test wants it")
		got := func(n *node, step Step) (held []time.Duration) {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, ev := range n.events {
				if ev.Step == step {
					held = append(held, ev.Held.Round(100*time.Millisecond))
				} else if ev.Held != 0 {
					t.Errorf("a record %v says that it was held for %v", ev.Step, ev.Held)
				}
			}
			return held
		}
		if h := got(a, Released); len(h) != 2 || h[0] != 0 || h[1] != 5*time.Second {
			t.Errorf("released after %v, want 0s for the part and 5s for the rest", h)
		}
		if h := got(b, Lost); len(h) != 1 || h[0] != time.Second {
			t.Errorf("lost after %v, want 1s", h)
		}
	})
}
