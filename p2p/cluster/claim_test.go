package cluster_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register/registertest"
)

// Who takes the place of a daemon that was killed has written that down when it links
// its view, and links none if it cannot.
func TestAClaimIsKeptBeforeItsLink(t *testing.T) {
	inWorld(t, func(w *world) {
		proved := func(c *member.Config) { c.Self.Boot, c.Self.Lock = "boot", member.LockFile{Dev: 1, Ino: 1} }
		a, b := w.add(), w.add()
		a.adapt = proved
		a.start()
		b.start()
		w.await("both together", 5*time.Second, func() bool { return w.together(a, b) })
		former, epoch := a.Status().Self, a.epoch()
		a.kill()

		var mu sync.Mutex
		var kept []member.Node
		tries, links := 0, 0
		s := w.add()
		s.id = a.id
		s.adapt = func(c *member.Config) {
			proved(c)
			c.Self.Peer, c.Former = a.id.String(), []member.Inc{former.Inc}
			c.Heir = &member.Heir{Of: former, Epoch: epoch}
			c.Self.Addrs = []string{"/memory/" + a.name}
			seed := uint64(99)
			c.Random = func() uint64 { seed = seed*6364136223846793005 + 1; return seed }
		}
		s.claim = func(by []member.Node) error {
			mu.Lock()
			defer mu.Unlock()
			if tries++; tries <= 2 {
				return errors.New("no space left on device")
			}
			kept = by
			return nil
		}
		f := func(op member.Op) registertest.Fault {
			mu.Lock()
			defer mu.Unlock()
			if l, ok := op.(member.LinkOp); ok && l.View.By.Peer == a.id.String() {
				if links++; !slices.Contains(kept, l.View.By) {
					t.Errorf("%v is linked, and it is written down that it is one of %v", l.View, kept)
				}
			}
			return registertest.Fault{Before: time.Millisecond, After: time.Millisecond}
		}
		s.faults.Store(&f)
		s.start()
		w.await("the successor is a member", 4*time.Second, func() bool { return w.together(s, b) })
		mu.Lock()
		defer mu.Unlock()
		if tries != 3 || links != 1 || s.noticed(member.Succeeded) != 1 || len(s.lost()) > 0 || len(b.lost()) > 0 {
			t.Errorf("%d attempts to write it down, %d links; %d times it goes on; lost: %v, %v", tries, links, s.noticed(member.Succeeded), s.lost(), b.lost())
		}
	})
}
