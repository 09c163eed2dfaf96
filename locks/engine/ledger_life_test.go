package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A ledger says nothing before the node is a member, nor after it is none.
func TestTheLifeOfALedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 2, true, nil)
		says := func(n *node, want error) {
			t.Helper()
			if _, err := ReadLedger(n.ledger); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", n.id, err, want)
			}
			if _, err := ReadLedgerView(n.ledger); !errors.Is(err, want) {
				t.Errorf("whose ledger that of %s is: %v, want %v", n.id, err, want)
			}
		}
		says(c.nodes[c.add("new")], ErrNoTenure)
		a := c.nodes["n0"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		says(a, nil)
		a.Engine.Expelled("a test")
		says(a, ErrNoTenure)
		c.view("n0", "n1")
		a.ledgerAgrees()
		if l, err := readLedger(a.ledger); err != nil || len(l.l.keys) > 0 {
			t.Errorf("%v, %+v: what was lost is there", err, l.l.keys)
		}
		mustGrant(t, a.start(w))
		a.ledgerAgrees()
		b := c.nodes["n1"]
		mustGrant(t, b.start(req(locks.Posix, 1, locks.Write, locks.Whole)))
		b.Leave()
		says(b, ErrNoTenure)
		// One that was frozen for good, and whose successor by execve(2) died.
		if _, err := a.Bequeath(); err != nil {
			t.Fatal(err)
		}
		says(a, nil)
	})
}

// The ledger of a successor names its former self until it is in a view itself.
func TestWhomALedgerNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 2, true, nil)
		names := func(n *node, want locks.NodeID) locks.Epoch {
			t.Helper()
			v, err := ReadLedgerView(n.ledger)
			if err != nil || v.Self != want {
				t.Errorf("the ledger of %s names %s (%v), want %s", n.id, v.Self, err, want)
			}
			return v.Epoch
		}
		epoch := names(c.nodes["n0"], "n0")
		x := c.killed("n0", "n0x")
		if e := names(x, "n0"); e != epoch {
			t.Errorf("it does so at epoch %d, and not at %d", e, epoch)
		}
		c.view("n0x", "n1")
		if e := names(x, "n0x"); e <= epoch {
			t.Errorf("a new view is not above epoch %d: %d", epoch, e)
		}
	})
}

// Of two successors each goes on with what the one before it had, also before a view
// has begun.
func TestASuccessorThatIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 2, true, nil)
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		g := mustGrant(t, c.nodes["n0"].start(w))
		waiting := c.nodes["n1"].start(w)
		time.Sleep(time.Second)
		c.killed("n0", "n0x")
		c.killed("n0x", "n0y")
		c.view("n0y", "n1")
		z := c.killed("n0y", "n0z")
		c.view("n0z", "n1")
		if got := mustGrant(t, z.start(w)); got != g || waiting.is() {
			t.Errorf("its owner has it as %v, and was granted %v; another one has it: %v", got, g, waiting.is())
		}
		z.Unlock(w.Key, 1, locks.Whole)
		mustGrant(t, waiting)
		c.ledgersAgree()
	})
}

// Times are those of the process that was killed.
func TestASuccessorKnowsTheTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 2, true, nil)
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, c.nodes["n0"].start(w))
		since := c.nodes["n0"].Locks()[0].Since
		time.Sleep(time.Minute)
		before := c.nodes["n0"].Moment()
		x := c.killed("n0", "n0x")
		if got := x.Locks()[0].Since; got.Sub(since).Abs() > time.Second {
			t.Errorf("it is held since %v, and was since %v", got, since)
		}
		if x.Moment() < before {
			t.Errorf("it is %v, and it was %v", x.Moment(), before)
		}
		if ids := x.Resumed(); len(ids) != 1 {
			t.Errorf("resumed: %v", ids)
		}
	})
}

// Damage that no program was told of for sure is told by the successor.
func TestASuccessorTellsOfDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 2, true, nil)
		a, b := c.nodes["n0"], c.nodes["n1"]
		broken := errors.New("the disk is full")
		a.onFlush = func(locks.Key) error { return broken }
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		p := b.start(w) // which is told
		a.Unlock(w.Key, 1, locks.Whole)
		<-p.done
		if !errors.Is(p.err, locks.ErrDamaged) {
			t.Fatal(p.err)
		}
		c.ledgersAgree()
		b = c.killed("n1", "n1x") // before its program has heard
		c.killed("n0", "n0x")
		c.view("n0x", "n1x")
		if p = b.start(w); !errors.Is(func() error { <-p.done; return p.err }(), locks.ErrDamaged) {
			t.Errorf("the program was not told: %v", p.err)
		}
		// It has been told by now; and the word is not given any more.
		time.Sleep(2 * time.Minute)
		b = c.killed("n1x", "n1y")
		c.view("n0x", "n1y")
		mustGrant(t, b.start(w))
		b.UnlockHandle(w.Key, 1, "closed")
		time.Sleep(20 * time.Second)
		c.ledgersAgree()
		c.ledgersAreEmpty()
	})
}

// A file that a program has written under a lock is written out by the successor,
// whether the lock is given up or not, and how ever far that had come.
func TestASuccessorOfOneThatWasKilledWritesOut(t *testing.T) {
	for _, state := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newKeeping(t, 2, true, nil)
			a := c.nodes["n0"]
			hangs := make(chan struct{})
			a.onFlush = func(locks.Key) error { <-hangs; return nil }
			w := req(locks.Flock, 1, locks.Write, locks.Whole)
			mustGrant(t, a.start(w))
			a.Unlock(w.Key, 1, locks.Whole)
			if state {
				a.Freeze()
				go a.State()
				synctest.Wait()
				a.start(req(locks.Flock, 2, locks.Read, locks.Whole)) // by which its line is written anew
			} else {
				c.nodes["n1"].start(w)
			}
			time.Sleep(20 * time.Second)
			x := c.nodes["n0"]
			state := c.readLedger(x)
			c.remove("n0")
			x.Engine.mu.Lock()
			x.ledger.dead = true
			x.Engine.mu.Unlock()
			close(hangs)
			x.stop()
			b := c.nodes[c.add("n0x")]
			if err := b.Inherit(state); err != nil {
				t.Fatal(err)
			}
			c.view("n0x", "n1")
			if flushes, _ := b.counts(); flushes != 1 {
				t.Errorf("%d write-outs", flushes)
			}
			c.ledgersAgree()
		})
	}
}

// What was taken through open files of which nobody knows is given up, and nothing else.
func TestGiveUpUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 2, true, nil)
		a, b := c.nodes["n0"], c.nodes["n1"]
		var others []*pending
		for _, class := range locks.Classes {
			for owner := 1; owner <= 2; owner++ {
				r := req(class, owner, locks.Write, locks.Whole)
				r.Key.File, r.Path = string(rune('a'+owner)), string(rune('a'+owner))
				mustGrant(t, a.start(r))
				others = append(others, b.start(r))
			}
		}
		c.killed("n0", "n0x")
		x := c.nodes["n0x"]
		c.view("n0x", "n1")
		if n := x.GiveUpUnknown(func(_ locks.Key, h locks.HandleID) bool { return h == 1 }, "nobody has it open"); n != 3 {
			t.Errorf("%d were given up", n)
		}
		time.Sleep(time.Second)
		for i, p := range others {
			if p.is() != (i%2 == 1) {
				t.Errorf("class %d, owner %d: granted elsewhere: %v", i/2, i%2+1, p.is())
			}
		}
		if held, _ := x.Count(); held != 3 {
			t.Errorf("%d are held", held)
		}
		c.ledgersAgree()
	})
}
