package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A sweep lets others go on in between. What becomes due because of them is done
// when it is due, not when the next one comes by chance.
func TestWhatBecomesDueDuringASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTuned(t, 1, func(o *Options) { o.Expire = 50 * time.Millisecond })
		n := c.nodes["n0"]
		mustGrant(t, n.start(waitingFlock(1, locks.Write)))
		waits := n.start(waitingFlock(2, locks.Write)) // so that sweeps have something to look at
		time.Sleep(20 * time.Second)                   // and come seldom

		resting := make(chan struct{})
		n.Engine.mu.Lock()
		n.Engine.mu.rest = func() time.Duration {
			n.Engine.mu.rest = nil
			close(resting)
			return time.Millisecond
		}
		n.Engine.mu.Unlock()
		<-resting
		other := waitingFlock(3, locks.Read)
		other.Key.File = "other"
		mustGrant(t, n.start(other))
		n.UnlockHandle(other.Key, other.Handle, "closed")

		time.Sleep(time.Second)
		n.Engine.mu.Lock()
		if n.entries.all[other.Key] != nil {
			t.Error("a file that nobody has used for a second is still known")
		}
		n.Engine.mu.Unlock()
		close(waits.cancel)
		<-waits.done
	})
}
