package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

const never = time.Hour

func mustGrant(t *testing.T, p *pending) locks.Grant {
	t.Helper()
	<-p.done
	if p.err != nil {
		t.Fatalf("not granted: %v", p.err)
	}
	return p.grant
}

func TestWriterWaitsForTheOtherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		first := mustGrant(t, a.start(w))
		p := b.start(w)
		time.Sleep(10 * time.Second)
		if p.is() {
			t.Fatal("two writers")
		}
		if _, err := b.try(req(locks.Flock, 2, locks.Read, locks.Whole)); !errors.Is(err, locks.ErrWouldBlock) {
			t.Fatalf("try beside a writer: %v", err)
		}
		a.Unlock(w.Key, 1, locks.Whole)
		g := mustGrant(t, p)
		if g.Token <= first.Token {
			t.Errorf("token %v is not above %v", g.Token, first.Token)
		}
		c.check()
	})
}

func TestRepeatedLockCostsNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		a := c.nodes["n0"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		a.Unlock(w.Key, 1, locks.Whole)
		before := c.sent
		_, refreshs := a.counts()
		for range 100 {
			mustGrant(t, a.start(w))
			a.Unlock(w.Key, 1, locks.Whole)
		}
		if c.sent != before {
			t.Errorf("%d messages for 100 repeated locks", c.sent-before)
		}
		if _, r := a.counts(); r != refreshs {
			t.Errorf("%d refreshs though nobody else wrote", r-refreshs)
		}
	})
}

func TestIdleKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		for _, n := range c.nodes {
			for i := range 10 {
				r := req(locks.Posix, i, locks.Write, locks.Range{Start: 0, End: 1})
				r.Key.File = string(rune('a' + i))
				mustGrant(t, n.start(r))
				n.UnlockOwner(r.Key, locks.OwnerID(i))
			}
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for _, n := range c.nodes {
			n.mu.Lock()
			n.Engine.mu.Lock()
			if len(n.entries.all) > 0 || n.entries.idle.Len() > 0 || len(n.waiters.all) > 0 || len(n.tickets.places.m) > 0 {
				t.Errorf("%s keeps %d entries, %d idle", n.id, len(n.entries.all), n.entries.idle.Len())
			}
			n.Engine.mu.Unlock()
			n.mu.Unlock()
		}
	})
}

func TestNothingIsKeptOfAnInterruptedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		p := b.start(w)
		time.Sleep(200 * time.Millisecond)
		close(p.cancel)
		<-p.done
		if !errors.Is(p.err, locks.ErrInterrupted) {
			t.Fatalf("err = %v", p.err)
		}
		a.Unlock(w.Key, 1, locks.Whole)
		time.Sleep(100 * time.Millisecond)
		if _, err := a.try(req(locks.Flock, 2, locks.Write, locks.Whole)); err != nil {
			t.Errorf("a ghost holds the lock: %v", err)
		}
		if got, want := b.steps(), "requested waiting withdrawn."; got != want {
			t.Errorf("journal of the waiter: %s, want %s", got, want)
		}
	})
}

// A signal does not end a try before its answer, unless that is long in coming.
func TestASignalDuringATry(t *testing.T) {
	for _, tt := range []struct {
		name  string
		delay time.Duration
		after time.Duration
		err   error
	}{
		{"the answer is near", 50 * time.Millisecond, 100 * time.Millisecond, locks.ErrWouldBlock},
		{"there is no answer", 10 * time.Second, tryGrace, locks.ErrInterrupted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 2)
				w := req(locks.Flock, 1, locks.Write, locks.Whole)
				mustGrant(t, c.nodes["n0"].start(w))
				c.mu.Lock()
				c.delay = tt.delay
				c.mu.Unlock()
				r := req(locks.Flock, 2, locks.Write, locks.Whole)
				r.Try = true
				began := time.Now()
				p := c.nodes["n1"].start(r)
				close(p.cancel)
				<-p.done
				if took := time.Since(began); !errors.Is(p.err, tt.err) || took != tt.after {
					t.Errorf("%v after %v, want %v after %v", p.err, took, tt.err, tt.after)
				}
			})
		})
	}
}

// A request that comes again within a second stands where it stood: before one
// that came later.
func TestInterruptedWaitKeepsItsPlace(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pause time.Duration
		first bool
	}{{"at once", 10 * time.Millisecond, true}, {"too late", 1500 * time.Millisecond, false}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 3)
				w := req(locks.Flock, 1, locks.Write, locks.Whole)
				mustGrant(t, c.nodes["n0"].start(w))
				p1 := c.nodes["n1"].start(w)
				time.Sleep(100 * time.Millisecond)
				p2 := c.nodes["n2"].start(w)
				time.Sleep(100 * time.Millisecond)
				close(p1.cancel)
				<-p1.done
				time.Sleep(tt.pause)
				p1 = c.nodes["n1"].start(w)
				time.Sleep(100 * time.Millisecond)
				c.nodes["n0"].Unlock(w.Key, 1, locks.Whole)
				time.Sleep(100 * time.Millisecond)
				if p1.is() != tt.first || p2.is() == tt.first {
					t.Errorf("first waiter granted: %v, second: %v", p1.is(), p2.is())
				}
			})
		})
	}
}

// flock(2): "converting a lock is not guaranteed to be atomic: the existing
// lock is first removed, and then a new lock is established"
// A wait that has a limit ends at it, on the node of the holder as on others,
// also outside of the cluster; nothing is left of it, and who waits longest is
// told of.
func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, c.nodes["n0"].start(w))
		for _, n := range []locks.NodeID{"n0", "n1"} {
			began := time.Now()
			limited := *w
			limited.Owner, limited.Handle, limited.Patience = 2, 2, 700
			p := c.nodes[n].start(&limited)
			time.Sleep(600 * time.Millisecond)
			if got := c.nodes[n].LongWaits(500 * time.Millisecond); len(got) != 1 || got[0].Owner != 2 {
				t.Errorf("%s: long waits: %v", n, got)
			}
			<-p.done
			if d := time.Since(began); !errors.Is(p.err, locks.ErrTimeout) || d != 700*time.Millisecond {
				t.Errorf("%s: %v after %v", n, p.err, d)
			}
			if got := c.nodes[n].LongWaits(0); len(got) != 0 {
				t.Errorf("%s: still waits: %v", n, got)
			}
		}
		c.nodes["n0"].Unlock(w.Key, 1, locks.Whole)
		mustGrant(t, c.nodes["n1"].start(w))
		c.nodes["n1"].Engine.Expelled("a test")
		again := *w
		again.Patience = 700
		p := c.nodes["n1"].start(&again)
		<-p.done
		if !errors.Is(p.err, locks.ErrTimeout) {
			t.Errorf("outside of the cluster: %v", p.err)
		}
	})
}

func TestFlockConversionGivesUpFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		r := req(locks.Flock, 1, locks.Read, locks.Whole)
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(r))
		mustGrant(t, b.start(r))
		if _, err := a.try(w); !errors.Is(err, locks.ErrWouldBlock) {
			t.Fatalf("upgrade beside a reader: %v", err)
		}
		// The shared lock is lost by that.
		if _, err := b.try(w); err != nil {
			t.Errorf("b does not get it: %v", err)
		}
		if _, err := b.try(r); err != nil {
			t.Errorf("downgrade: %v", err)
		}
		if _, err := a.try(r); err != nil {
			t.Errorf("shared after the downgrade: %v", err)
		}
	})
}

// fcntl(2): a conversion that cannot be had leaves the old lock as it is.
func TestPosixUpgradeKeepsTheOldLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		all := locks.Range{Start: 0, End: 10}
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Read, all)))
		mustGrant(t, b.start(req(locks.Posix, 1, locks.Read, all)))
		if _, err := a.try(req(locks.Posix, 1, locks.Write, all)); !errors.Is(err, locks.ErrWouldBlock) {
			t.Fatalf("upgrade beside a reader: %v", err)
		}
		if _, err := b.try(req(locks.Posix, 1, locks.Write, all)); !errors.Is(err, locks.ErrWouldBlock) {
			t.Error("a has lost its lock")
		}
		// It waits, and is granted when the other reader goes.
		p := a.start(req(locks.Posix, 1, locks.Write, all))
		time.Sleep(50 * time.Millisecond)
		b.UnlockOwner(locks.Key{File: "f", Class: locks.Posix}, 1)
		mustGrant(t, p)
		if got := a.steps(); !strings.HasSuffix(got, "granted released.") {
			t.Errorf("the read lock is not closed in the journal: %s", got)
		}
	})
}

// The owner of a lock that came through a handle can't be told by its number
// alone: kernel owners repeat. A late RELEASE frees only its own.
func TestLateReleaseFreesOnlyItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		r := req(locks.Posix, 7, locks.Write, locks.Range{Start: 0, End: 10})
		r.Handle = 1
		mustGrant(t, a.start(r))
		r2 := *r
		r2.Handle, r2.Range = 2, locks.Range{Start: 5, End: 20}
		mustGrant(t, a.start(&r2)) // the same number, another open file
		a.UnlockHandle(r.Key, 1, "closed")
		if _, err := b.try(req(locks.Posix, 1, locks.Write, locks.Range{Start: 0, End: 5})); err != nil {
			t.Errorf("[0,5) is still held: %v", err)
		}
		if _, err := b.try(req(locks.Posix, 1, locks.Write, locks.Range{Start: 5, End: 6})); !errors.Is(err, locks.ErrWouldBlock) {
			t.Errorf("[5,20) was freed by the close of another open file: %v", err)
		}
	})
}

func TestOpenLocksAreSharedByANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		open := func(h int, m locks.Mode) *locks.Request {
			r := req(locks.Open, 0, m, locks.Whole)
			r.Handle = locks.HandleID(h)
			return r
		}
		mustGrant(t, a.start(open(1, locks.Write)))
		mustGrant(t, a.start(open(2, locks.Write)))
		mustGrant(t, a.start(open(3, locks.Read)))
		p := b.start(open(1, locks.Read))
		k := locks.Key{File: "f", Class: locks.Open}
		a.UnlockHandle(k, 1, "closed")
		time.Sleep(time.Second)
		if p.is() {
			t.Fatal("read beside a writer on another node")
		}
		a.UnlockHandle(k, 2, "closed")
		mustGrant(t, p) // the reader of a does not matter
	})
}

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

// A State for an epoch that never came, and that is late, must not stop the
// machines of the one that has begun.
func TestALateState(t *testing.T) {
	for _, slow := range []bool{false, true} { // it begins late, or is held up by the storage
		synctest.Test(t, func(t *testing.T) {
			c := newNet(t, 2)
			a, b := c.nodes["n0"], c.nodes["n1"]
			w := req(locks.Posix, 1, locks.Write, locks.Whole)
			mustGrant(t, a.start(w))
			a.Unlock(w.Key, 1, locks.Whole)
			late := make(chan []byte)
			if slow {
				first, gate := true, make(chan struct{})
				a.onFlush = func(locks.Key) error {
					if first {
						first = false
						<-gate
					}
					return nil
				}
				a.Freeze()
				go func() { late <- a.State() }()
				synctest.Wait()
				go func() {
					time.Sleep(time.Second)
					close(gate)
				}()
			}
			c.view("n0", "n1")
			if !slow {
				go func() { late <- a.State() }()
			}
			<-late
			p := b.start(w)
			time.Sleep(10 * time.Second)
			if !p.is() {
				t.Fatal("the machines stand still")
			}
			mustGrant(t, p)
			b.Unlock(w.Key, 1, locks.Whole)
			mustGrant(t, a.start(w))
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

func TestEpochChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		a, b, d := c.nodes["n0"], c.nodes["n1"], c.nodes["n2"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		held := mustGrant(t, a.start(w))
		pb := b.start(w)
		other := req(locks.Flock, 1, locks.Write, locks.Whole)
		other.Key.File = "g"
		mustGrant(t, d.start(other))
		time.Sleep(50 * time.Millisecond)
		pd := b.start(other)
		time.Sleep(50 * time.Millisecond)
		// n2 is gone: what it held is free, what n0 holds is not.
		c.view("n0", "n1")
		d.Engine.Expelled("gone")
		mustGrant(t, pd)
		time.Sleep(5 * time.Second)
		if pb.is() {
			t.Fatal("two writers after the change")
		}
		// It comes back, while n0 still holds.
		c.view("n0", "n1", "n2")
		p := d.start(w)
		time.Sleep(time.Second)
		if p.is() {
			t.Fatal("a newcomer gets what is held")
		}
		a.Unlock(w.Key, 1, locks.Whole)
		g := mustGrant(t, pb)
		if g.Token <= held.Token {
			t.Errorf("token %v after %v", g.Token, held.Token)
		}
		b.Unlock(w.Key, 1, locks.Whole)
		mustGrant(t, p)
		c.check()
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

func TestExpelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		g := mustGrant(t, a.start(w))
		wait := a.start(req(locks.Flock, 2, locks.Write, locks.Whole))
		synctest.Wait()
		if err := a.Admit(nil, g.Tenure); err != nil {
			t.Fatalf("Admit while live: %v", err)
		}
		lost := a.Engine.Expelled("n1 went on without it")
		<-wait.done
		if !errors.Is(wait.err, locks.ErrLost) {
			t.Errorf("the waiter is told %v", wait.err)
		}
		if len(lost) != 2 || !lost[0].Held || lost[1].Held || lost[0].Program.PID != 1001 {
			t.Errorf("lost = %+v", lost)
		}
		if err := a.Admit(nil, g.Tenure); !errors.Is(err, locks.ErrLost) {
			t.Errorf("Admit after it: %v", err)
		}
		if a.expelled != 1 {
			t.Error("the mount was not told")
		}
		if _, err := a.try(w); !errors.Is(err, locks.ErrUnavailable) {
			t.Errorf("a try outside: %v", err)
		}
		p := a.start(w)
		time.Sleep(time.Minute)
		if p.is() {
			t.Fatal("granted outside")
		}
		c.view("n0", "n1")
		mustGrant(t, p)
		if !strings.Contains(a.steps(), "requested granted requested lost. lost.") {
			t.Errorf("journal: %s", a.steps())
		}
		if _, err := b.try(w); !errors.Is(err, locks.ErrWouldBlock) {
			t.Errorf("b: %v", err)
		}
	})
}

func TestSuspendedNodeGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		g := mustGrant(t, a.start(req(locks.Flock, 3, locks.Read, locks.Whole)))
		a.Unlock(w.Key, 3, locks.Whole)
		a.dead.Store(true)
		p := a.start(w)
		time.Sleep(time.Minute)
		if p.is() {
			t.Fatal("granted while suspended")
		}
		io := make(chan error, 1)
		go func() { io <- a.Admit(nil, g.Tenure) }()
		synctest.Wait()
		select {
		case err := <-io:
			t.Fatalf("I/O admitted: %v", err)
		default:
		}
		// It still answers others.
		mustGrant(t, b.start(req(locks.Flock, 1, locks.Read, locks.Whole)))
		b.Unlock(w.Key, 1, locks.Whole)
		// A try is given up after a while, with an error that says so.
		if _, err := a.try(req(locks.Flock, 2, locks.Read, locks.Whole)); !errors.Is(err, locks.ErrUnavailable) {
			t.Errorf("try while suspended: %v", err)
		}
		a.dead.Store(false)
		a.Resume()
		mustGrant(t, p)
		if err := <-io; err != nil {
			t.Errorf("Admit: %v", err)
		}
	})
}

func TestTestAsksTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		a, b := c.nodes["n0"], c.nodes["n1"]
		mustGrant(t, b.start(req(locks.Posix, 1, locks.Read, locks.Range{Start: 10, End: 20})))
		mustGrant(t, b.start(req(locks.Posix, 1, locks.Read, locks.Range{Start: 20, End: 30})))
		test := func(n *node, m locks.Mode, r locks.Range) *locks.Conflict {
			c, err := n.Test(nil, req(locks.Posix, 9, m, r))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		if got := test(a, locks.Read, locks.Whole); got != nil {
			t.Errorf("readers do not conflict: %+v", got)
		}
		got := test(a, locks.Write, locks.Range{Start: 15, End: 16})
		if got == nil || got.Mode != locks.Read || got.Range != (locks.Range{Start: 10, End: 30}) || got.Node != "n1" || got.PID != 1001 {
			t.Errorf("conflict = %+v", got)
		}
		if got := test(b, locks.Write, locks.Range{Start: 0, End: 11}); got == nil || got.Node != "" {
			t.Errorf("on the holder's node: %+v", got)
		}
		if got := test(a, locks.Write, locks.Range{Start: 30, End: 40}); got != nil {
			t.Errorf("beyond: %+v", got)
		}
		// What an owner has itself, as F_OFD_GETLK finds it with F_UNLCK.
		own := func(owner int, r locks.Range) *locks.Conflict {
			c, err := b.Test(nil, req(locks.Posix, owner, 0, r))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		if got := own(1, locks.Range{Start: 25, End: 50}); got == nil || got.Range != (locks.Range{Start: 10, End: 30}) || got.Mode != locks.Read {
			t.Errorf("its own: %+v", got)
		}
		if got := own(1, locks.Range{Start: 30, End: 50}); got != nil {
			t.Errorf("beside its own: %+v", got)
		}
		if got := own(2, locks.Whole); got != nil {
			t.Errorf("of another owner: %+v", got)
		}
	})
}

func TestSickJournalStopsNewLocksOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		g := mustGrant(t, a.start(w))
		full := errors.New("no space left on device")
		a.sick.Store(&full)
		if _, err := a.try(req(locks.Flock, 2, locks.Read, locks.Whole)); !errors.Is(err, locks.ErrUnavailable) || !errors.Is(err, full) {
			t.Errorf("err = %v", err)
		}
		if err := a.Admit(nil, g.Tenure); err != nil {
			t.Errorf("what is held goes on: %v", err)
		}
		a.Unlock(w.Key, 1, locks.Whole)
		if _, err := b.try(w); err != nil {
			t.Errorf("the unlock did not count: %v", err)
		}
	})
}

func TestLeaveEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, b.start(w))
		p := a.start(w)
		q := make(chan error, 1)
		go func() { _, err := a.Test(nil, req(locks.Posix, 1, locks.Write, locks.Whole)); q <- err }()
		c.mu.Lock()
		c.delay = never
		c.mu.Unlock()
		go func() { _, err := a.Test(nil, req(locks.Posix, 1, locks.Write, locks.Whole)); q <- err }()
		synctest.Wait()
		a.Leave()
		<-p.done
		if !errors.Is(p.err, locks.ErrUnavailable) {
			t.Errorf("err = %v", p.err)
		}
		for range 2 {
			if err := <-q; err != nil && !errors.Is(err, locks.ErrUnavailable) {
				t.Errorf("Test: %v", err)
			}
		}
		if _, err := a.try(w); !errors.Is(err, locks.ErrUnavailable) {
			t.Errorf("after Leave: %v", err)
		}
	})
}

// Two readers that stand behind a waiting writer of each other's file would be
// a deadlock that one Linux host does not have: the queue gives way.
func TestQueueCannotMakeADeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 4)
		file := func(f string, m locks.Mode) *locks.Request {
			r := req(locks.Flock, 1, m, locks.Whole)
			r.Key.File = f
			return r
		}
		// p (n0) holds R f, q (n1) holds R g; writers wait for each.
		mustGrant(t, c.nodes["n0"].start(file("f", locks.Read)))
		mustGrant(t, c.nodes["n1"].start(file("g", locks.Read)))
		w1 := c.nodes["n2"].start(file("f", locks.Write))
		w2 := c.nodes["n3"].start(file("g", locks.Write))
		time.Sleep(100 * time.Millisecond)
		// p now reads g, q reads f: on Linux both may, as R is held.
		p := c.nodes["n0"].start(file("g", locks.Read))
		q := c.nodes["n1"].start(file("f", locks.Read))
		time.Sleep(5 * time.Second)
		if !p.is() || !q.is() {
			t.Fatal("readers wait for ever behind writers that wait for readers")
		}
		for _, f := range []string{"f", "g"} {
			k := locks.Key{File: f, Class: locks.Flock}
			c.nodes["n0"].Unlock(k, 1, locks.Whole)
			c.nodes["n1"].Unlock(k, 1, locks.Whole)
		}
		mustGrant(t, w1)
		mustGrant(t, w2)
	})
}

// The end of one wait can let another one in, also at the end of all: a reader
// behind a writer.
func TestLeaveWithWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Read, locks.Whole)))
		writer := a.start(req(locks.Posix, 2, locks.Write, locks.Whole))
		synctest.Wait()
		reader := a.start(req(locks.Posix, 3, locks.Read, locks.Whole))
		if writer.is() || reader.is() {
			t.Fatal("they do not wait")
		}
		a.Leave()
		if !writer.is() || !errors.Is(writer.err, locks.ErrUnavailable) || !reader.is() {
			t.Errorf("after Leave: %v, %v", writer.err, reader.err)
		}
	})
}

// What a node holds when it leaves is free when it has left, not when it begins
// to: its programs may have writes on their way. And tokens go on to rise.
func TestHeldUntilItHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Posix, 1, locks.Write, locks.Whole)
		last := mustGrant(t, a.start(w))
		a.Leave()
		a.Unlock(w.Key, 1, locks.Whole)
		a.UnlockHandle(w.Key, w.Handle, "closed")
		p := b.start(w)
		time.Sleep(5 * time.Second)
		c.view("n0", "n1", "n2") // of something else
		time.Sleep(5 * time.Second)
		if p.is() {
			t.Fatalf("granted with token %v while n0 is a member: %v", p.grant.Token, p.err)
		}
		c.view("n1", "n2")
		if g := mustGrant(t, p); g.Token <= last.Token {
			t.Errorf("token %v after %v", g.Token, last.Token)
		}
		if s := a.steps(); s != "requested granted released." {
			t.Errorf("the journal has %q", s)
		}
		if lost := a.Engine.Expelled("late"); len(lost) > 0 || a.steps() != "requested granted released." {
			t.Errorf("what was given up is lost, too: %v, %q", lost, a.steps())
		}
	})
}

// The same when the file is closed through which they wait.
func TestCloseWithWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Read, locks.Whole)))
		w, r := req(locks.Posix, 2, locks.Write, locks.Whole), req(locks.Posix, 3, locks.Read, locks.Whole)
		r.Handle = w.Handle
		writer := a.start(w)
		synctest.Wait()
		reader := a.start(r)
		if writer.is() || reader.is() {
			t.Fatal("they do not wait")
		}
		a.UnlockHandle(w.Key, w.Handle, "closed")
		if !writer.is() || !reader.is() {
			t.Error("a wait goes on")
		}
	})
}

// An epoch begins before the one who asked has heard that there is an answer.
func TestAnAnsweredQueryIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		a.Engine.mu.Lock()
		q := &query{id: a.Engine.id(), key: locks.Key{File: "f", Class: locks.Posix}, mode: locks.Write, rng: locks.Whole, done: make(chan struct{})}
		a.queries.open[q.id] = q
		a.queries.ask(q)
		a.queries.answered(q, "n1", []locks.Conflict{{Mode: locks.Write, Range: locks.Whole}})
		// its caller has not got e.mu yet
		a.Engine.mu.Unlock()
		defer func() {
			if x := recover(); x != nil {
				t.Errorf("panic: %v", x)
			}
		}()
		c.view("n0") // n1 has died
		if len(q.found) == 0 {
			t.Error("what was found is lost")
		}
	})
}
