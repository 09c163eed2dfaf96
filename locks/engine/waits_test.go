package engine

import (
	"testing"
	"testing/synctest"

	"github.com/dmxfs/dmxfs/locks"
)

// A caller is told before its call waits, whatever for, and not otherwise.
func TestACallSaysThatItWaits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(a, b *node) // what happened before
		try    bool
		waits  bool
	}{
		{"the other node is asked", func(a, b *node) {}, false, true},
		{"the other node is asked, by a try", func(a, b *node) {}, true, true},
		{"the node has the permission", func(a, b *node) {
			w := req(locks.Flock, 1, locks.Write, locks.Whole)
			mustGrant(a.net.t, a.start(w))
			a.Unlock(w.Key, w.Owner, locks.Whole)
		}, false, false},
		{"a lock of this node denies a try", func(a, b *node) {
			w := req(locks.Flock, 1, locks.Write, locks.Whole)
			mustGrant(a.net.t, a.start(w))
			p := a.start(req(locks.Flock, 3, locks.Write, locks.Whole))
			synctest.Wait()
			a.Unlock(w.Key, w.Owner, locks.Whole)
			mustGrant(a.net.t, p)
		}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 2)
				a, b := c.nodes["n0"], c.nodes["n1"]
				tt.before(a, b)
				r := req(locks.Flock, 2, locks.Write, locks.Whole)
				r.Try = tt.try
				said := 0
				r.Waits = func() { said++ }
				a.start(r)
				synctest.Wait()
				if (said > 0) != tt.waits {
					t.Errorf("said so %d times", said)
				}
			})
		})
	}
}
