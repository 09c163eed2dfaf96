package engine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A second request of the same owner waits, too, while the data behind the first
// one is being renewed.
func TestALockThatIsBeingRenewedIsNotToldToASecondThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Posix, 1, locks.Write, locks.Whole)
		mustGrant(t, b.start(w))
		b.Unlock(w.Key, w.Owner, locks.Whole)
		gate := make(chan struct{})
		a.refresh = func(locks.Key) error { <-gate; return nil }
		r1 := a.start(req(locks.Posix, 1, locks.Read, locks.Whole))
		time.Sleep(20 * time.Millisecond)
		if r1.is() {
			t.Fatal("not refreshing")
		}
		r2 := a.start(req(locks.Posix, 1, locks.Read, locks.Whole)) // another thread
		time.Sleep(20 * time.Millisecond)
		if r2.is() {
			t.Errorf("granted before Refresh has returned: %v", r2.err)
		}
		close(gate)
		time.Sleep(time.Second)
	})
}

// And when it can't be renewed nobody was told that he has it.
func TestALockThatCouldNotBeRenewedIsNotToldToASecondThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Posix, 1, locks.Write, locks.Whole)
		mustGrant(t, b.start(w))
		b.Unlock(w.Key, w.Owner, locks.Whole)
		gate := make(chan struct{})
		a.refresh = func(locks.Key) error { <-gate; return errors.New("EIO") }
		r1 := a.start(req(locks.Posix, 1, locks.Write, locks.Whole))
		time.Sleep(20 * time.Millisecond)
		r2 := a.start(req(locks.Posix, 1, locks.Write, locks.Whole)) // another thread
		time.Sleep(20 * time.Millisecond)
		granted := r2.is() && r2.err == nil
		close(gate)
		time.Sleep(time.Second)
		_, err := b.try(req(locks.Posix, 1, locks.Write, locks.Whole))
		if granted && err == nil {
			t.Errorf("two have it: n0's second thread was told so, %v; n1 too", r2.err)
		}
		_ = r1
	})
}

// An owner that asked for more, and was not told that it has it, keeps what it
// had before.
func TestAGrantThatIsTakenBackLeavesWhatWasThere(t *testing.T) {
	for _, how := range []string{"refresh fails", "interrupted while suspended"} {
		for _, before := range []locks.Mode{locks.Read, locks.Write} {
			t.Run(fmt.Sprint(how, ", before: ", before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { takenBack(t, how == "refresh fails", before) })
			})
		}
	}
}

func takenBack(t *testing.T, fails bool, before locks.Mode) {
	c := newNet(t, 2)
	a, b := c.nodes["n0"], c.nodes["n1"]
	first, second := locks.Range{Start: 0, End: 10}, locks.Range{Start: 10, End: 20}
	mustGrant(t, a.start(req(locks.Posix, 1, before, first)))
	// Another node has written other bytes: the next grant renews.
	w := req(locks.Posix, 7, locks.Write, second)
	mustGrant(t, b.start(w))
	b.Unlock(w.Key, w.Owner, locks.Whole)
	gate := make(chan struct{})
	a.refresh = func(locks.Key) error {
		<-gate
		if fails {
			return errors.New("EIO")
		}
		return nil
	}
	p := a.start(req(locks.Posix, 1, locks.Write, locks.Range{Start: 0, End: 20}))
	time.Sleep(20 * time.Millisecond)
	a.dead.Store(!fails) // suspended; its tenure goes on
	close(gate)
	synctest.Wait()
	close(p.cancel)
	<-p.done
	a.dead.Store(false)
	a.Resume()
	if p.err == nil {
		t.Fatal("it was told of more")
	}
	if _, err := b.try(w); err != nil {
		t.Errorf("what it asked for it still has: %v", err)
	}
	if _, err := b.try(req(locks.Posix, 7, locks.Write, first)); err == nil {
		t.Error("another node has what it had before, and never gave up")
	}
	if _, err := b.try(req(locks.Posix, 7, locks.Read, first)); (err == nil) != (before == locks.Read) {
		t.Errorf("another node reads what it had in mode %v: %v", before, err)
	}
}

// A file is closed while the grant of its lock is on its way.
func TestALockMayBeGivenUpWhileItIsDelivered(t *testing.T) {
	for _, how := range []string{"refresh fails", "interrupted while suspended"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 2)
				a := c.nodes["n0"]
				gate := make(chan struct{})
				a.refresh = func(locks.Key) error {
					<-gate
					if how == "refresh fails" {
						return errors.New("EIO")
					}
					return nil
				}
				r := ofFile("x", locks.Write, 0)
				cancel, done := make(chan struct{}), make(chan any)
				go func() {
					defer func() { done <- recover() }()
					a.Lock(cancel, r)
				}()
				time.Sleep(20 * time.Millisecond)
				a.dead.Store(how != "refresh fails")
				close(cancel) // lockCalls.release of fusefs: withdraw, then UnlockHandle
				a.UnlockHandle(r.Key, r.Handle, "closed")
				close(gate)
				if x := <-done; x != nil {
					t.Errorf("the daemon ends: %v", x)
				}
			})
		})
	}
}
