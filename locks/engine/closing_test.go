package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

func flockTry(handle locks.HandleID) *locks.Request {
	return &locks.Request{Key: locks.Key{File: "f", Class: locks.Flock}, Path: "f", Owner: locks.OwnerID(handle), Handle: handle,
		Mode: locks.Write, Range: locks.Whole, Try: true}
}

// A try that comes between close(2) and the kernel's word of it, on the same
// node or another one, gets the lock; when it was not the last close, it is
// denied a moment later.
func TestTriesWaitForALockOnItsWayOut(t *testing.T) {
	for _, last := range []bool{true, false} {
		for _, other := range []string{"n0", "n1"} {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 2)
				a, b := c.nodes["n0"], c.nodes[locks.NodeID(other)]
				hold := flockTry(1)
				if _, err := a.Lock(nil, hold); err != nil {
					t.Fatal(err)
				}
				a.Closing(hold.Key, hold.Handle)
				began := time.Now()
				done := make(chan error, 1)
				go func() {
					_, err := b.Lock(nil, flockTry(2))
					done <- err
				}()
				synctest.Wait()
				if last {
					time.Sleep(5 * time.Millisecond)
					a.UnlockHandle(hold.Key, hold.Handle, "closed")
				}
				err := <-done
				d := time.Since(began)
				switch {
				case last && (err != nil || d > 20*time.Millisecond):
					t.Errorf("last close, a try on %s: %v after %v", other, err, d)
				case !last && (!errors.Is(err, locks.ErrWouldBlock) || d < closeTime || d > closeTime+20*time.Millisecond):
					t.Errorf("not the last close, a try on %s: %v after %v", other, err, d)
				}
				// Once it is known not to have been the last one, nobody waits.
				if !last {
					began = time.Now()
					if _, err := b.Lock(nil, flockTry(3)); !errors.Is(err, locks.ErrWouldBlock) || time.Since(began) > 20*time.Millisecond {
						t.Errorf("a later try on %s: %v after %v", other, err, time.Since(began))
					}
				}
			})
		}
	}
}

// What holds a lock's frames up ends with the epoch.
func TestClosingEndsWithTheEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		hold := flockTry(1)
		if _, err := a.Lock(nil, hold); err != nil {
			t.Fatal(err)
		}
		a.Closing(hold.Key, hold.Handle)
		wait := flockTry(2)
		wait.Try = false
		done := make(chan error, 1)
		go func() {
			_, err := b.Lock(nil, wait)
			done <- err
		}()
		time.Sleep(10 * time.Millisecond)
		c.view("n0", "n1")
		time.Sleep(time.Second)
		select {
		case err := <-done:
			t.Fatalf("beside the holder: %v", err)
		default:
		}
		a.UnlockHandle(hold.Key, hold.Handle, "closed")
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func waitingFlock(h locks.HandleID, m locks.Mode) *locks.Request {
	r := flockTry(h)
	r.Try, r.Mode = false, m
	return r
}

// The first of the frames that were held up makes the machine idle, so that its
// entry is dropped; the next one makes it anew. That stays, with the permission
// that it has given.
func TestWhatWasHeldUpMakesTheEntryAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		a.written.Store(true) // Cleaner: nothing to write out
		hold := waitingFlock(1, locks.Write)
		mustGrant(t, a.start(hold))
		a.Closing(hold.Key, hold.Handle)
		r := b.start(waitingFlock(2, locks.Read))
		synctest.Wait()
		w := b.start(waitingFlock(3, locks.Write))
		time.Sleep(10 * time.Millisecond) // both requests are held up at n0
		a.UnlockHandle(hold.Key, hold.Handle, "closed")
		time.Sleep(5 * time.Millisecond)
		mustGrant(t, r)
		b.UnlockHandle(hold.Key, 2, "closed")
		mustGrant(t, w)
		// b writes.
		p := a.start(waitingFlock(4, locks.Read))
		time.Sleep(100 * time.Millisecond)
		if p.is() && p.err == nil {
			t.Errorf("n0 reads while n1 writes")
		}
		b.UnlockHandle(hold.Key, 3, "closed")
		mustGrant(t, p)
	})
}
