package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// succeed replaces the process of a node by another one, which is called by
// another name, and is in no view yet.
func (c *net) succeed(old, name locks.NodeID) *node {
	c.t.Helper()
	a := c.nodes[old]
	state, err := a.Bequeath()
	if err != nil {
		c.t.Fatalf("%s hands over: %v", old, err)
	}
	synctest.Wait()
	a.stop()
	c.remove(old)
	b := c.nodes[c.add(name)]
	if err := b.Inherit(state); err != nil {
		c.t.Fatalf("%s takes over: %v", name, err)
	}
	return b
}

func (c *net) remove(id locks.NodeID) {
	c.mu.Lock()
	delete(c.nodes, id)
	c.mu.Unlock()
}

func isHandedOver(t *testing.T, ps ...*pending) {
	t.Helper()
	for i, p := range ps {
		if !p.is() || !errors.Is(p.err, locks.ErrBequeathed) {
			t.Errorf("call %d that waited: ended %v, %v", i, p.is(), p.err)
		}
	}
}

var everyAlgorithm = append([]string{"rw"}, exclusives...)

// What is held stays held, with its token, and who waits elsewhere has it when it
// is given up.
func TestASuccessorHoldsWhatItsFormerSelfHeld(t *testing.T) {
	for _, alg := range everyAlgorithm {
		t.Run(alg, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 3)
				a, b := c.nodes["n0"], c.nodes["n1"]
				w := on(alg, "f", req(locks.Flock, 1, locks.Write, locks.Whole))
				g := mustGrant(t, a.start(w))
				other := b.start(w)
				time.Sleep(time.Second)
				ids := a.heldIDs()

				a = c.succeed("n0", "n0x")
				time.Sleep(time.Second)
				if other.is() {
					t.Fatal("another node was granted what is held, between the processes")
				}
				if got := a.heldIDs(); !reflect.DeepEqual(got, ids) || !reflect.DeepEqual(a.Resumed(), ids) {
					t.Errorf("requests %v are held, and %v were resumed: want %v", got, a.Resumed(), ids)
				}
				c.view("n0x", "n1", "n2")
				again := mustGrant(t, a.start(w))
				if again != g {
					t.Errorf("its owner has it as %v, but was granted %v", again, g)
				}
				if err := a.Admit(nil, g.Tenure); err != nil {
					t.Errorf("I/O under it: %v", err)
				}
				if _, err := c.nodes["n2"].try(w); !errors.Is(err, locks.ErrWouldBlock) || other.is() {
					t.Errorf("a try elsewhere: %v; granted to who waits: %v", err, other.is())
				}
				a.Unlock(w.Key, 1, locks.Whole)
				if later := mustGrant(t, other); later.Token <= g.Token {
					t.Errorf("token %v after %v", later.Token, g.Token)
				}
				c.check()
			})
		})
	}
}

// heldIDs are the requests that n holds something of.
func (n *node) heldIDs() (ids []uint64) {
	n.Engine.mu.Lock()
	defer n.Engine.mu.Unlock()
	for _, en := range n.entries.all {
		for _, t := range en.tickets {
			if t.held {
				ids = append(ids, t.req.id)
			}
		}
	}
	return ids
}

// Who waits keeps his place between those of other nodes, and the journal hears
// of one request.
func TestASuccessorKeepsThePlaceOfWhoWaits(t *testing.T) {
	for _, alg := range everyAlgorithm {
		t.Run(alg, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 4)
				w := on(alg, "f", req(locks.Flock, 1, locks.Write, locks.Whole))
				mustGrant(t, c.nodes["n0"].start(w))
				var ps [4]*pending
				for i := 1; i < 4; i++ {
					ps[i] = c.nodes[nodeID(i)].start(w)
					time.Sleep(100 * time.Millisecond)
				}
				former := c.nodes["n2"]
				next := c.succeed("n2", "n2x")
				isHandedOver(t, ps[2])
				ps[2] = next.start(w)
				c.view("n0", "n1", "n2x", "n3")
				time.Sleep(100 * time.Millisecond)
				c.nodes["n0"].Unlock(w.Key, 1, locks.Whole)
				names, left := []locks.NodeID{1: "n1", 2: "n2x", 3: "n3"}, []int{1, 2, 3}
				for len(left) > 0 {
					time.Sleep(100 * time.Millisecond)
					got := slices.IndexFunc(left, func(i int) bool { return ps[i].is() })
					if got < 0 {
						t.Fatalf("nobody of %v has it", left)
					}
					if got > 0 && alg != "rcv" { // whose order is another one
						t.Fatalf("process %d of %v was granted it before its turn", left[got], left)
					}
					mustGrant(t, ps[left[got]])
					c.nodes[names[left[got]]].Unlock(w.Key, 1, locks.Whole)
					left = slices.Delete(left, got, got+1)
				}
				if s := former.steps() + ", " + next.steps(); s != "requested waiting, granted released." {
					t.Errorf("the journal says: %s", s)
				}
				c.check()
			})
		})
	}
}

// A grant of which the program was not told yet is told by the successor; what
// nobody comes back to is free after a while.
func TestASuccessorTellsOfAGrantThatIsOnItsWay(t *testing.T) {
	for _, claimed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newNet(t, 2)
			a, b := c.nodes["n0"], c.nodes["n1"]
			w := req(locks.Flock, 1, locks.Write, locks.Whole)
			mustGrant(t, b.start(w))
			b.Unlock(w.Key, 1, locks.Whole)
			hangs := make(chan struct{})
			a.refresh = func(locks.Key) error { <-hangs; return nil }
			p := a.start(w)
			time.Sleep(time.Second)
			a = c.succeed("n0", "n0x")
			close(hangs)
			isHandedOver(t, p)
			_, before := a.counts()
			c.view("n0x", "n1")
			if claimed {
				mustGrant(t, a.start(w))
				if _, n := a.counts(); n == before {
					t.Error("what is cached was not renewed")
				}
			}
			other := b.start(w)
			time.Sleep(5 * time.Second)
			if other.is() {
				t.Fatal("another node has it, too")
			}
			time.Sleep(10 * time.Second)
			if other.is() == claimed {
				t.Errorf("claimed %v, and another node has it: %v", claimed, other.is())
			}
			if claimed {
				a.Unlock(w.Key, 1, locks.Whole)
			}
			mustGrant(t, other)
		})
	}
}

// A ticket for which nobody comes back gives way to those behind it.
func TestWhoDoesNotComeBackIsPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, c.nodes["n0"].start(w))
		gone := c.nodes["n1"].start(w)
		time.Sleep(time.Second)
		behind := c.nodes["n2"].start(w)
		time.Sleep(time.Second)
		next := c.succeed("n1", "n1x")
		isHandedOver(t, gone)
		c.view("n0", "n1x", "n2")
		c.nodes["n0"].Unlock(w.Key, 1, locks.Whole)
		time.Sleep(5 * time.Second)
		if behind.is() {
			t.Fatal("it was passed before its time")
		}
		time.Sleep(10 * time.Second)
		mustGrant(t, behind)
		if held, waiting := next.Count(); held+waiting > 0 {
			t.Errorf("%d are held, %d wait", held, waiting)
		}
	})
}

// If the others went on without the former self nothing of it counts.
func TestASuccessorThatComesTooLateLosesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		g := mustGrant(t, c.nodes["n0"].start(w))
		p := c.nodes["n1"].start(w)
		next := c.succeed("n0", "n0x")
		c.view("n1", "n2")
		mustGrant(t, p)
		lost := next.Engine.Expelled("dropped")
		if len(lost) != 1 || !lost[0].Held {
			t.Errorf("lost: %v", lost)
		}
		c.view("n0x", "n1", "n2")
		if err := next.Admit(nil, g.Tenure); !errors.Is(err, locks.ErrLost) {
			t.Errorf("I/O under it: %v", err)
		}
		if _, err := next.try(w); !errors.Is(err, locks.ErrWouldBlock) {
			t.Errorf("a try: %v", err)
		}
		if next.expelled != 1 || next.steps() != "lost. requested denied." {
			t.Errorf("%d, %s", next.expelled, next.steps())
		}
	})
}

// What was written under a lock that is free is on the storage before anybody is
// granted it, by whichever process.
func TestASuccessorWritesOutWhatItsFormerSelfOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		a.Unlock(w.Key, 1, locks.Whole)
		a = c.succeed("n0", "n0x")
		c.view("n0x", "n1")
		if flushes, _ := a.counts(); flushes != 1 {
			t.Errorf("%d write-outs", flushes)
		}
	})
}

// A lock from before the rules were changed stays beside its machine.
func TestASuccessorAndNewRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		r := on("db", "f", req(locks.Posix, 1, locks.Read, locks.Whole))
		a, b := c.nodes["n0"], c.nodes["n1"]
		mustGrant(t, a.start(r))
		mustGrant(t, b.start(r))
		c.rules("db")
		c.view("n0", "n1")
		w := on("db", "f", req(locks.Posix, 2, locks.Write, locks.Whole))
		p := b.start(w)
		a = c.succeed("n0", "n0x")
		c.view("n0x", "n1")
		b.Unlock(r.Key, 1, locks.Whole)
		time.Sleep(time.Second)
		if p.is() {
			t.Fatal("granted while another node holds it from before")
		}
		a.Unlock(r.Key, 1, locks.Whole)
		mustGrant(t, p)
	})
}

// A file that is just being written out for another node is not handed over.
func TestBequestWhileAFileIsWrittenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		gate := make(chan struct{})
		a.onFlush = func(locks.Key) error { <-gate; return nil }
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		a.Unlock(w.Key, 1, locks.Whole)
		p := b.start(w)
		time.Sleep(time.Second)
		if _, err := a.Bequeath(); !errors.Is(err, errNotNow) {
			t.Errorf("handed over: %v", err)
		}
		close(gate)
		mustGrant(t, p)
		if _, err := a.Bequeath(); err != nil {
			t.Error(err)
		}
	})
}

// Bequeath fails when it is not sure what is held, and nothing has happened then.
func TestBequestAtTheWrongMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		fails := func(when string) {
			t.Helper()
			if state, err := a.Bequeath(); err == nil || state != nil {
				t.Errorf("handed over %s", when)
			}
		}
		a.dead.Store(true)
		fails("while it was not live")
		a.dead.Store(false)
		a.Freeze()
		fails("between two views")
		c.view("n0", "n1")
		a.Condemn(w.Key, []locks.HandleID{1}, "an admin wants it")
		fails("while a lock was taken away")
		a.Condemn(w.Key, []locks.HandleID{1}, "")
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, locks.Whole)))

		state, err := a.Bequeath()
		if err != nil {
			t.Fatal(err)
		}
		// A view that comes now is for the successor to answer.
		if a.Freeze(); a.State() != nil {
			t.Error("the engine says what it holds after it has handed it over")
		}
		fails("twice")
		if err := c.nodes["n1"].Inherit(state); err == nil {
			t.Error("a member took over the locks of another one")
		}
		if _, err := a.try(w); !errors.Is(err, locks.ErrBequeathed) {
			t.Errorf("a try: %v", err)
		}
		if err := a.Admit(nil, a.Tenure()+1); !errors.Is(err, locks.ErrLost) {
			t.Errorf("I/O of another tenure: %v", err)
		}
		a.dead.Store(true)
		if err := a.Admit(nil, a.Tenure()); !errors.Is(err, locks.ErrBequeathed) {
			t.Errorf("I/O: %v", err)
		}
		if _, err := a.Test(nil, w); !errors.Is(err, locks.ErrBequeathed) {
			t.Errorf("a question: %v", err)
		}
		// The next view does not bring it back.
		c.epoch++
		a.Install(&locks.View{Epoch: c.epoch, Self: "n0", Members: []locks.NodeID{"n0"}})
		if err := a.Sync("n0", c.epoch, []byte{0}); err != nil { // as if it held nothing
			t.Error(err)
		}
		if _, err := a.try(w); !errors.Is(err, locks.ErrBequeathed) {
			t.Errorf("a try in a later view: %v", err)
		}
	})
}

// random has programs of n do something of every kind.
func (n *node) random(rnd *rand.Rand) (waiting []*pending) {
	for range 60 {
		owner := 1 + rnd.IntN(4)
		m := locks.Read + locks.Mode(rnd.IntN(2))
		alg := everyAlgorithm[rnd.IntN(len(everyAlgorithm))]
		rng := locks.Whole
		class := locks.Classes[rnd.IntN(len(locks.Classes))]
		if class == locks.Posix {
			rng.Start = uint64(rnd.IntN(10))
			rng.End = rng.Start + uint64(1+rnd.IntN(10))
		}
		r := on(alg, fmt.Sprint(rnd.IntN(3)), req(class, owner, m, rng))
		switch rnd.IntN(6) {
		case 0:
			if class != locks.Open {
				n.Unlock(r.Key, r.Owner, rng)
			}
		case 1:
			n.UnlockHandle(r.Key, r.Handle, "closed")
		case 2:
			if class == locks.Open {
				n.Share(r.Key, r.Handle, "a test")
			}
		case 3:
			n.try(r)
		default:
			if p := n.start(r); !p.is() {
				waiting = append(waiting, p)
			}
		}
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
	}
	return waiting
}

// timeless is what l says but for times, and clocks, which may go on.
func timeless(l *legacy) *legacy {
	x := *l
	x.moment, x.lastID = 0, 0
	for i := range x.words {
		x.words[i].ago = 0
	}
	for i := range x.places {
		x.places[i].since, x.places[i].ago = 0, 0
	}
	x.requests = nil
	for _, r := range l.requests {
		c := *r
		c.asked, c.granted, c.pieces = time.Time{}, time.Time{}, 0
		x.requests = append(x.requests, &c)
	}
	for i, k := range x.keys {
		if x.keys[i].machine = nil; k.algorithm != "rw" {
			r := wire.NewReader(k.machine)
			r.Uint()
			x.keys[i].machine = r.Rest()
		}
		for j := range k.tickets {
			k.tickets[j].since = 0
		}
	}
	return &x
}

// A successor would leave what was left to it, whatever that is, and ends no
// process's locks but by its own doing.
func TestASuccessorIsWhatItsFormerSelfWas(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			c := newNet(t, 2)
			a, b := c.nodes["n0"], c.nodes["n1"]
			elsewhere := b.random(rnd)
			waiting := a.random(rnd)
			elsewhere = append(elsewhere, b.random(rnd)...)
			waiting = slices.DeleteFunc(waiting, (*pending).is)
			state, err := a.Bequeath()
			if err != nil {
				t.Fatal(err)
			}
			isHandedOver(t, waiting...)
			a.stop()
			c.remove("n0")
			x := c.nodes[c.add("n0x")]
			if err := x.Inherit(state); err != nil {
				t.Fatal(err)
			}
			x.Engine.mu.Lock()
			left, err := readLegacy(state, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			is, was := timeless(x.bequest.describe()), timeless(left)
			for i := range min(len(is.keys), len(was.keys)) {
				if !reflect.DeepEqual(is.keys[i], was.keys[i]) {
					t.Errorf("seed %d: it is\n%+v\nand was\n%+v", seed, is.keys[i], was.keys[i])
				}
			}
			if !reflect.DeepEqual(is, was) {
				t.Errorf("seed %d: it is %+v, and was %+v", seed, is, was)
			}
			x.Engine.mu.Unlock()
			c.view("n0x", "n1")
			c.check()
			for _, n := range []*node{x, b} {
				for _, class := range locks.Classes {
					for _, alg := range everyAlgorithm {
						for f := range 3 {
							for h := range 5 {
								n.UnlockHandle(locks.Key{File: fmt.Sprintf("%s/%d", alg, f), Class: class}, locks.HandleID(h), "closed")
							}
						}
					}
				}
			}
			for i, p := range elsewhere {
				if !p.is() {
					t.Errorf("seed %d: process %d of the other node still waits", seed, i)
				}
			}
			if held, waits := x.Count(); held+waits > 0 {
				t.Errorf("seed %d: %d are held, %d wait", seed, held, waits)
			}
			c.check()
		})
	}
}
