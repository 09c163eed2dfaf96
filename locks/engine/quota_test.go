package engine

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dmxfs/dmxfs/locks"
)

// A process that has as many locks as it may gets an error, others do not; what
// it gives up it can have again.
func TestLimitOfLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		const limit = 10
		a.Engine.mu.Lock()
		a.o.MaxLocks = limit
		a.Engine.mu.Unlock()
		at := func(owner, i int) *locks.Request {
			return req(locks.Posix, owner, locks.Write, locks.Range{Start: uint64(2 * i), End: uint64(2*i + 1)})
		}
		for i := range limit {
			mustGrant(t, a.start(at(1, i)))
		}
		for range 3 {
			if _, err := a.try(at(1, limit)); !errors.Is(err, locks.ErrUnavailable) {
				t.Fatalf("one more: %v", err)
			}
		}
		mustGrant(t, a.start(at(1, 3))) // it has that one
		wider := at(1, 3)
		wider.Range.End++ // it replaces that one
		mustGrant(t, a.start(wider))
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, wider.Range)))
		a.Unlock(wider.Key, 1, locks.Range{Start: 7, End: 8})
		mustGrant(t, a.start(at(2, 100)))
		k := at(1, 0).Key
		a.Unlock(k, 1, at(1, 0).Range)
		mustGrant(t, a.start(at(1, limit)))
		if _, err := a.try(at(1, limit+1)); !errors.Is(err, locks.ErrUnavailable) {
			t.Fatalf("one more: %v", err)
		}
		// One piece for ten.
		a.Unlock(k, 1, locks.Whole)
		all := req(locks.Posix, 1, locks.Write, locks.Range{Start: 0, End: 10})
		mustGrant(t, a.start(all))
		for i := range limit - 1 {
			mustGrant(t, a.start(at(1, 10+i)))
		}
		a.UnlockOwner(k, 1)
		a.UnlockOwner(k, 2)
		// Nothing is left of waits that end in other ways either.
		mustGrant(t, c.nodes["n1"].start(req(locks.Posix, 7, locks.Write, locks.Whole)))
		p := a.start(at(1, 0))
		synctest.Wait()
		close(p.cancel)
		<-p.done
		if _, err := a.try(at(1, 0)); !errors.Is(err, locks.ErrWouldBlock) {
			t.Errorf("a try: %v", err)
		}
		a.Engine.mu.Lock()
		if len(a.quota.users) != 0 {
			t.Errorf("%d processes are still counted", len(a.quota.users))
		}
		a.Engine.mu.Unlock()
	})
}

// Programs that the daemon cannot see have a bound as well, each its own.
func TestLimitOfLocksOfTheUnseen(t *testing.T) {
	e := costly(t, 1)
	const limit = 10
	e.o.MaxLocks = limit
	at := func(owner locks.OwnerID, i int) *locks.Request {
		r := piece(0, i, locks.Write)
		r.Owner, r.Program = owner, locks.Program{}
		return r
	}
	for i := range limit {
		if _, err := e.Lock(nil, at(1, i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Lock(nil, at(1, limit)); !errors.Is(err, locks.ErrUnavailable) {
		t.Errorf("one more: %v", err)
	}
	if _, err := e.Lock(nil, at(2, limit)); err != nil {
		t.Errorf("another one: %v", err)
	}
	e.UnlockOwner(at(1, 0).Key, 1)
	e.UnlockOwner(at(1, 0).Key, 2)
	if len(e.quota.users) != 0 {
		t.Errorf("%d are still counted", len(e.quota.users))
	}
}
