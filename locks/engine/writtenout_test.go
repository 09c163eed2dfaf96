package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// The data is written out before the permission leaves, and what is cached is
// dropped before the next holder goes on.
func TestDataIsHandedOverWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		storage, written := "", ""
		mustGrant(t, a.start(w))
		gate := make(chan struct{})
		a.onFlush = func(locks.Key) error {
			<-gate
			storage = written
			return nil
		}
		seen := ""
		b.refresh = func(locks.Key) error {
			seen = storage
			return nil
		}
		written = "hello"
		a.Unlock(w.Key, 1, locks.Whole)
		p := b.start(w)
		time.Sleep(10 * time.Second)
		if p.is() {
			t.Fatal("granted before the data was written out")
		}
		close(gate)
		mustGrant(t, p)
		if seen != "hello" {
			t.Errorf("b sees %q", seen)
		}
		// Once more on b: nobody wrote since.
		_, before := b.counts()
		b.Unlock(w.Key, 1, locks.Whole)
		mustGrant(t, b.start(w))
		if _, after := b.counts(); after != before {
			t.Error("refreshed though nobody else wrote")
		}
	})
}

// An unlock tells whether somebody goes on because of it.
func TestUnlockTellsWhetherSomebodyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w, other := req(locks.Flock, 1, locks.Write, locks.Whole), req(locks.Flock, 2, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		if a.Unlock(w.Key, 1, locks.Whole) {
			t.Error("nobody waits")
		}
		mustGrant(t, a.start(w))
		p := a.start(other)
		synctest.Wait()
		if !a.Unlock(w.Key, 1, locks.Whole) {
			t.Error("another program of the node waits")
		}
		mustGrant(t, p)
		p = b.start(w)
		time.Sleep(time.Second)
		if !a.Unlock(w.Key, 2, locks.Whole) {
			t.Error("another node waits")
		}
		mustGrant(t, p)
	})
}

// What is written under a range that is held still goes out before that range
// is handed over, also if another range of the file was handed over meanwhile.
func TestEveryRangeIsWrittenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		first, second := locks.Range{Start: 0, End: 10}, locks.Range{Start: 10, End: 20}
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, first)))
		mustGrant(t, a.start(req(locks.Posix, 2, locks.Write, second)))
		k := locks.Key{File: "f", Class: locks.Posix}
		for i, r := range []locks.Range{first, second} {
			before, _ := a.counts()
			a.Unlock(k, locks.OwnerID(i+1), r)
			mustGrant(t, b.start(req(locks.Posix, i+1, locks.Write, r)))
			if after, _ := a.counts(); after == before {
				t.Errorf("%v was handed over without a write-out", r)
			}
		}
	})
}

// A new epoch takes all permissions that no lock uses: what was written under
// them goes out before, also if another range of the file is held for writing.
func TestEveryRangeIsWrittenOutBeforeAnEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		first, second := locks.Range{Start: 0, End: 10}, locks.Range{Start: 10, End: 20}
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, first)))
		mustGrant(t, a.start(req(locks.Posix, 2, locks.Write, second)))
		k := locks.Key{File: "f", Class: locks.Posix}
		a.Unlock(k, 1, first)
		c.view("n0", "n1")
		if flushes, _ := a.counts(); flushes != 1 {
			t.Errorf("%d write-outs before the new epoch", flushes)
		}
		mustGrant(t, b.start(req(locks.Posix, 1, locks.Write, first)))
		// What was written under the other one since goes out with it.
		a.Unlock(k, 2, second)
		mustGrant(t, b.start(req(locks.Posix, 2, locks.Write, second)))
		if flushes, _ := a.counts(); flushes != 2 {
			t.Errorf("%d write-outs in all", flushes)
		}
	})
}

// A blind request renews nothing, and leaves that to the next one.
func TestBlindRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		for _, n := range []*node{a, b} {
			mustGrant(t, n.start(w))
			n.Unlock(w.Key, 1, locks.Whole)
		}
		_, before := a.counts()
		blind := *w
		blind.Blind = true
		mustGrant(t, a.start(&blind))
		if _, after := a.counts(); after != before {
			t.Errorf("%d renewals for a blind request", after-before)
		}
		a.Unlock(w.Key, 1, locks.Whole)
		mustGrant(t, a.start(w))
		if _, after := a.counts(); after != before+1 {
			t.Errorf("%d renewals for the one after it, want 1", after-before)
		}
	})
}

// What is given up while a new epoch is prepared was written under a lock that
// was held when the write-out began: it goes out too, before the epoch.
func TestWrittenOutWhatIsGivenUpBeforeAnEpoch(t *testing.T) {
	for _, other := range []bool{false, true} { // another range is held all the time
		synctest.Test(t, func(t *testing.T) {
			c := newNet(t, 2)
			a := c.nodes["n0"]
			first, second := locks.Range{Start: 0, End: 10}, locks.Range{Start: 10, End: 20}
			mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, first)))
			if other {
				mustGrant(t, a.start(req(locks.Posix, 2, locks.Write, second)))
			}
			gate := make(chan struct{})
			a.onFlush = func(locks.Key) error { <-gate; return nil }
			a.Freeze()
			stated := make(chan []byte)
			go func() { stated <- a.State() }()
			synctest.Wait()
			before, _ := a.counts()
			// The program writes, and gives up what it wrote under.
			a.Unlock(locks.Key{File: "f", Class: locks.Posix}, 1, first)
			close(gate)
			<-stated
			if after, _ := a.counts(); before != 1 || after != 2 {
				t.Errorf("another range held %v: %d write-outs before, %d after", other, before, after)
			}
		})
	}
}

func TestRefreshThatFailsGivesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Posix, 1, locks.Write, locks.Whole)
		bad := errors.New("stale handle")
		a.refresh = func(locks.Key) error { return bad }
		if _, err := a.try(w); !errors.Is(err, bad) {
			t.Fatalf("err = %v", err)
		}
		if _, err := b.try(w); err != nil {
			t.Errorf("the lock was kept: %v", err)
		}
	})
}

// What was written under a permission that ends with the epoch must be on the
// storage before the others hear that it ended: readers ask nobody then.
func TestStateWaitsForTheWriteOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		a.Unlock(w.Key, 1, locks.Whole)
		gate := make(chan struct{})
		a.onFlush = func(locks.Key) error { <-gate; return nil }
		a.Freeze()
		done := make(chan struct{})
		go func() { a.State(); close(done) }()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("State did not wait")
		default:
		}
		close(gate)
		<-done
	})
}

// What is held for writing stays its own: a new epoch does not wait for it to be written out,
// which is done when it is handed over. A node that leaves has nothing of its own.
func TestWhatIsHeldIsNotWrittenOutBeforeAnEpoch(t *testing.T) {
	part := locks.Range{Start: 0, End: 10}
	for _, x := range []struct {
		what      string
		r         *locks.Request
		exclusive bool
		gives     locks.Range // what is given up of it before
		flushes   int
	}{
		{what: "flock", r: req(locks.Flock, 1, locks.Write, locks.Whole)},
		{what: "the whole file", r: req(locks.Posix, 1, locks.Write, locks.Whole)},
		{what: "an open file", r: req(locks.Open, 1, locks.Write, locks.Whole)},
		{what: "what one node has at a time", r: req(locks.Flock, 1, locks.Read, locks.Whole), exclusive: true},
		{what: "a part", r: req(locks.Posix, 1, locks.Write, part), flushes: 1},
		{what: "the rest", r: req(locks.Posix, 1, locks.Write, locks.Whole), gives: part, flushes: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newNet(t, 2)
			if x.exclusive {
				c.exclusive.Store(&x.r.Path)
			}
			a, b := c.nodes["n0"], c.nodes["n1"]
			mustGrant(t, a.start(x.r))
			if x.gives != (locks.Range{}) {
				a.Unlock(x.r.Key, x.r.Owner, x.gives)
			}
			c.view("n0", "n1")
			if flushes, _ := a.counts(); flushes != x.flushes {
				t.Errorf("%s: %d write-outs before the new epoch", x.what, flushes)
			}
			// It has stayed dirty.
			p := b.start(x.r)
			synctest.Wait()
			a.UnlockHandle(x.r.Key, x.r.Handle, "closed")
			a.Unlock(x.r.Key, x.r.Owner, locks.Whole)
			mustGrant(t, p)
			if flushes, _ := a.counts(); flushes != x.flushes+1 {
				t.Errorf("%s: %d write-outs when it is handed over", x.what, flushes-x.flushes)
			}
			b.Freeze() // and no Install
			if b.State(); len(b.flushes) != 1 {
				t.Errorf("%s: %d write-outs of a node that leaves", x.what, len(b.flushes))
			}
		})
	}
}
