package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A try waits for a member that was killed until another process has taken its place, however
// long that takes, and through the view that comes of it: it is no reason to say that the lock
// cannot be had. Where the members do not come to a view it is told so soon.
func TestATryDuringALongTakeover(t *testing.T) {
	for _, x := range []struct {
		view time.Duration // until the members have agreed on it
		want error
	}{
		{500 * time.Millisecond, locks.ErrWouldBlock},
		{10 * time.Second, locks.ErrUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newKeeping(t, 2, true, nil)
			a, b := c.nodes["n0"], c.nodes["n1"]
			mustGrant(t, a.start(req(locks.Flock, 1, locks.Write, locks.Whole)))
			a.Engine.mu.Lock()
			a.ledger.dead = true
			a.Engine.mu.Unlock()
			r := req(locks.Flock, 2, locks.Write, locks.Whole)
			r.Try = true
			p := b.start(r)
			time.Sleep(3 * time.Second)
			if p.is() {
				t.Fatalf("a try that nobody has answered: %v", p.err)
			}
			c.killed("n0", "n0x")
			b.Freeze()
			began := time.Now()
			select {
			case <-p.done:
				if took := time.Since(began); took < tryPatience || took > 2*tryPatience+time.Second {
					t.Errorf("it ends after %v", took)
				}
			case <-time.After(x.view):
			}
			c.view("n1", "n0x")
			<-p.done
			if !errors.Is(p.err, x.want) {
				t.Errorf("with a view after %v: %v, want %v", x.view, p.err, x.want)
			}
		})
	}
}
