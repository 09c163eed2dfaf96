package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

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
