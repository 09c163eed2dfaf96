package engine

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// What is taken through an open file is given up owner by owner, and others have
// the engine in between. If the tenure ends there, what is on its way to the next
// owner is lost, and not given up as well.
func TestTheTenureEndsWhileAnOpenFileIsClosed(t *testing.T) {
	for _, how := range []string{"closed", "broken"} {
		t.Run(how, func(t *testing.T) {
			defer func(n int) { maxAtOnce = n }(maxAtOnce)
			maxAtOnce = 1
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 2)
				a, e := c.nodes["n0"], c.nodes["n0"].Engine
				for i := range uint64(4) {
					mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, locks.Range{Start: 10 * i, End: 10*i + 1})))
				}
				r := req(locks.Posix, 2, locks.Write, locks.Range{Start: 100, End: 101})
				r.Handle = 1
				gate := make(chan struct{})
				a.refresh = func(locks.Key) error { <-gate; return nil }
				a.stale(r.Key)
				p := a.start(r)
				if time.Sleep(20 * time.Millisecond); p.is() {
					t.Fatal("not renewing")
				}
				if how == "broken" {
					a.Condemn(r.Key, []locks.HandleID{1}, "an admin wants it")
				}
				expelled := expelWhenTired(e)
				if how == "broken" {
					a.Break(r.Key, []locks.HandleID{1})
				} else {
					a.UnlockHandle(r.Key, 1, "closed")
				}
				close(gate)
				if <-p.done; !errors.Is(p.err, locks.ErrLost) {
					t.Errorf("it is told: %v", p.err)
				}
				if a.Tenure() == 1 {
					t.Error("the tenure has not ended")
				}
				<-expelled // it breathes, too, before all is written down
				requests, ends := strings.Count(a.steps(), "requested"), strings.Count(a.steps(), ".")
				if requests != 5 || ends != 5 {
					t.Errorf("%d requests and %d ends in the journal: %s", requests, ends, a.steps())
				}
			})
		})
	}
}

// expelWhenTired makes e.mu be held for a breath by each look at the time, and
// ends the tenure when who holds it breathes. The result is closed when that is done.
func expelWhenTired(e *Engine) <-chan struct{} {
	expelled := make(chan struct{})
	var now atomic.Int64
	var done atomic.Bool
	e.mu.Lock()
	defer e.mu.Unlock()
	runtime.LockOSThread() // as Lock does where busy is set
	e.mu.began = 0
	e.mu.busy = func() time.Duration {
		n := now.Add(int64(breath))
		if n > 2*int64(breath) && done.CompareAndSwap(false, true) {
			go func() {
				defer close(expelled)
				e.Expelled("expelled")
			}()
			for e.mu.waiting.Load() == 0 {
				runtime.Gosched()
			}
		}
		return time.Duration(n)
	}
	return expelled
}
