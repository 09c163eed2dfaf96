package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A node whose time runs out between a grant and its answer does not tell it
// before it is live again, and never if it was expelled.
func TestALateGrantIsNotTold(t *testing.T) {
	for _, expelled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newNet(t, 2)
			a := c.nodes["n0"]
			a.refresh = func(locks.Key) error { // after the grant
				a.dead.Store(true)
				return nil
			}
			p := a.start(req(locks.Flock, 1, locks.Write, locks.Whole))
			time.Sleep(10 * c.delay) // for its messages
			if p.is() {
				t.Fatalf("expelled %v: told: %v", expelled, p.err)
			}
			if len(a.refreshs) != 1 {
				t.Fatalf("not granted: %s", a.steps())
			}
			if expelled {
				a.Engine.Expelled("stopped for too long")
			} else {
				a.dead.Store(false)
				a.Resume()
			}
			<-p.done
			if expelled != errors.Is(p.err, locks.ErrLost) || !expelled && p.err != nil {
				t.Errorf("expelled %v: %v", expelled, p.err)
			}
		})
	}
}

// State is called in a goroutine of its own, which may come late.
func TestALateStateLeavesWhatIsToBeWrittenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		stored := false
		a.onFlush = func(locks.Key) error {
			time.Sleep(500 * time.Millisecond)
			stored = true
			return nil
		}
		w := req(locks.Posix, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		a.Unlock(w.Key, w.Owner, locks.Whole) // the permission stays
		go a.State()                          // of an epoch before
		synctest.Wait()
		mustGrant(t, b.start(req(locks.Posix, 1, locks.Read, locks.Whole)))
		if !stored {
			t.Error("n1 reads before n0 has written out")
		}
		time.Sleep(time.Second)
	})
}
