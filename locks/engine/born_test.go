package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// The first lock of a file that its own program has just made renews nothing,
// unless somebody else may have written it since.
func TestTheFirstLockOfANewFile(t *testing.T) {
	for _, tt := range []struct {
		name    string
		path    string
		since   func(c *net, a, b *node) // what happens after the file was made
		renewed bool
	}{
		{"nobody else", "f", nil, false},
		{"it was there", "f", func(*net, *node, *node) {}, true},
		{"another node was faster", "f", func(_ *net, _, b *node) {
			w := req(locks.Open, 2, locks.Write, locks.Whole)
			mustGrant(b.net.t, b.start(w))
			b.UnlockHandle(w.Key, w.Handle, "closed")
		}, true},
		{"another node has read it", "f", func(_ *net, _, b *node) {
			r := req(locks.Open, 2, locks.Read, locks.Whole)
			mustGrant(b.net.t, b.start(r))
			b.UnlockHandle(r.Key, r.Handle, "closed")
		}, false},
		{"another node was faster, and is forgotten", "f", func(_ *net, a, b *node) {
			w := req(locks.Open, 2, locks.Write, locks.Whole)
			mustGrant(b.net.t, b.start(w))
			b.UnlockHandle(w.Key, w.Handle, "closed")
			time.Sleep(3 * time.Second)
			a.Engine.mu.Lock()
			defer a.Engine.mu.Unlock()
			if n := len(a.entries.all); n != 0 {
				a.net.t.Errorf("%d entries are left", n)
			}
		}, true},
		{"long ago", "f", func(*net, *node, *node) { time.Sleep(time.Minute) }, false},
		{"before this epoch", "f", func(c *net, _, _ *node) {
			time.Sleep(time.Millisecond)
			c.view("n0", "n1")
		}, true},
		{"not all are asked", "rcv/f", nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 2)
				a, b := c.nodes["n0"], c.nodes["n1"]
				time.Sleep(time.Second)
				w := req(locks.Open, 1, locks.Write, locks.Whole)
				w.Path = tt.path
				if tt.name != "it was there" {
					w.Born = a.Moment()
				}
				time.Sleep(time.Millisecond)
				if tt.since != nil {
					tt.since(c, a, b)
				}
				mustGrant(t, a.start(w))
				if _, n := a.counts(); (n > 0) != tt.renewed {
					t.Errorf("renewed %d times", n)
				}
				// From then on it is a file like any other.
				a.UnlockHandle(w.Key, w.Handle, "closed")
				other := req(locks.Open, 2, locks.Write, locks.Whole)
				other.Path = tt.path
				mustGrant(t, b.start(other))
				b.UnlockHandle(other.Key, other.Handle, "closed")
				_, before := a.counts()
				mustGrant(t, a.start(w))
				if _, after := a.counts(); after == before {
					t.Error("not renewed after another node had written it")
				}
			})
		})
	}
}
