package engine

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// turns has a lock of class c go to and fro between programs of two nodes, the
// other one waiting each time, and returns who has it in the end. Frames take a
// millisecond.
func (c *net) turns(class locks.Class, n int, pause time.Duration) (holder, other *node) {
	holder, other = c.nodes["n0"], c.nodes["n1"]
	holder.held(class)
	for range n {
		p := other.start(req(class, 1, locks.Write, locks.Whole))
		synctest.Wait()
		time.Sleep(pause)
		holder.Unlock(locks.Key{File: "f", Class: class}, 1, locks.Whole)
		<-p.done
		holder, other = other, holder
	}
	synctest.Wait() // for what came with the last answer
	return holder, other
}

// eagerly makes the nodes of every other random run ask back what they can.
func eagerly(seed uint64) func(*Options) {
	if seed%2 == 1 {
		return nil
	}
	return func(o *Options) { o.AskBack = AskBackLimits{After: 1, Often: time.Second, Missed: 1} }
}

// held takes the lock that turns is about.
func (n *node) held(class locks.Class) {
	p := n.start(req(class, 1, locks.Write, locks.Whole))
	<-p.done
	if p.err != nil {
		n.net.t.Errorf("%s: %v", n.id, p.err)
	}
}

// asksBack reports whether n has asked for the permission of the lock back.
func (n *node) asksBack(class locks.Class) bool {
	n.Engine.mu.Lock()
	defer n.Engine.mu.Unlock()
	en := n.entries.all[locks.Key{File: "f", Class: class}]
	return en != nil && en.back != nil && en.back.ticket != 0
}

// A lock that goes to and fro is asked back with the answer: the program that
// comes again sends nothing.
func TestALockIsAskedBack(t *testing.T) {
	for _, class := range []locks.Class{locks.Flock, locks.Posix} {
		synctest.Test(t, func(t *testing.T) {
			c := newNet(t, 2)
			h, o := c.turns(class, 20, 0)
			if !o.asksBack(class) {
				t.Fatal("it was not asked back")
			}
			var p *pending
			if n := c.frames(func() {
				p = o.start(req(class, 1, locks.Write, locks.Whole))
				if p.is() {
					t.Error("two have it")
				}
			}); n != 0 {
				t.Errorf("the program that comes again costs %d messages", n)
			}
			if n := c.frames(func() {
				h.Unlock(locks.Key{File: "f", Class: class}, 1, locks.Whole)
				<-p.done
			}); n != 2 || p.err != nil {
				t.Errorf("%d messages, not an answer and a question; %v", n, p.err)
			}
			c.check()
		})
	}
}

// Where a lock is handed over now and then, and where it is read, the answer
// goes alone.
func TestALockIsNotAskedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		if _, o := c.turns(locks.Flock, 20, 10*time.Millisecond); o.asksBack(locks.Flock) {
			t.Error("asked back after 10 ms each")
		}
		// By turns for reading and for writing.
		a, b := c.nodes["n0"], c.nodes["n1"]
		key := locks.Key{File: "f", Class: locks.Posix}
		for range 20 {
			for _, n := range []*node{a, b} {
				for _, m := range []locks.Mode{locks.Write, locks.Read} {
					p := n.start(req(locks.Posix, 1, m, locks.Whole))
					<-p.done
					n.Unlock(key, 1, locks.Whole)
				}
			}
			if a.asksBack(locks.Posix) || b.asksBack(locks.Posix) {
				t.Fatal("asked back what is read last")
			}
		}
	})
}

// What goes to a node for a wrong guess comes back by that of the node that has
// used it, and the wrong one is not made again soon.
func TestAskedBackForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		key := locks.Key{File: "f", Class: locks.Flock}
		h, o := c.turns(locks.Flock, 20, 0)
		if n := c.frames(func() {
			h.Unlock(key, 1, locks.Whole) // the program of o does not come again
			time.Sleep(5 * time.Millisecond)
		}); n != 3 {
			t.Errorf("%d messages for a wrong guess, not there with a question, and back", n)
		}
		for range 3 {
			if n := c.frames(func() { h.held(locks.Flock) }); n != 0 {
				t.Errorf("%d messages to have again what nobody wants", n)
			}
			h.Unlock(key, 1, locks.Whole)
		}
		for range 10 {
			if _, last := c.turns(locks.Flock, 2, 0); last != o {
				t.Fatal("another one had it last")
			}
			if o.asksBack(locks.Flock) {
				t.Error("a guess soon after a wrong one")
			}
			h.Unlock(key, 1, locks.Whole)
			synctest.Wait()
		}
		time.Sleep(10 * time.Millisecond)
		if _, last := c.turns(locks.Flock, 60, 0); !last.asksBack(locks.Flock) {
			t.Error("no guess is made any more")
		}
		c.check()
	})
}

// A guess that no program leans on ends, and until then it does not hold up
// who may share with the holder but for a moment, and not at all on its own node.
func TestAGuessEnds(t *testing.T) {
	for _, reader := range []locks.NodeID{"none", "own"} {
		synctest.Test(t, func(t *testing.T) {
			c := newNet(t, 2)
			h, o := c.turns(locks.Posix, 20, 0)
			h.start(req(locks.Posix, 1, locks.Read, locks.Whole)) // downgraded
			synctest.Wait()
			if !o.asksBack(locks.Posix) {
				t.Fatal("not asked back")
			}
			n, limit := o, 5*time.Millisecond
			if reader != "none" {
				began := time.Now()
				p := n.start(req(locks.Posix, 2, locks.Read, locks.Whole))
				<-p.done
				if d := time.Since(began); d > limit || p.err != nil {
					t.Errorf("a reader on the %s node: %v after %v", reader, p.err, d)
				}
				n.Unlock(locks.Key{File: "f", Class: locks.Posix}, 2, locks.Whole)
			}
			time.Sleep(100 * time.Millisecond)
			if o.asksBack(locks.Posix) {
				t.Error("it still asks")
			}
			if n := c.frames(func() { h.Unlock(locks.Key{File: "f", Class: locks.Posix}, 1, locks.Whole) }); n != 0 {
				t.Errorf("%d messages for somebody who is not there", n)
			}
			time.Sleep(3 * time.Second)
			c.isIdle()
		})
	}
}

// Programs of some nodes that want one lock all the time have it equally often, and
// none of them before one that asked earlier than its request can have been heard
// of. No node of three or more makes a guess, whose early place would spoil that.
func TestTurnsAreEqual(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		synctest.Test(t, func(t *testing.T) {
			c := newNet(t, n)
			var mu sync.Mutex
			asked := map[locks.NodeID]time.Time{}
			turns := map[locks.NodeID]int{}
			all, overtaken := 0, 0
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for id, node := range c.nodes {
				wg.Go(func() {
					r := req(locks.Flock, 1, locks.Write, locks.Whole)
					for {
						select {
						case <-stop:
							return
						default:
						}
						mu.Lock()
						mine := time.Now()
						asked[id] = mine
						mu.Unlock()
						if p := node.start(r); true {
							<-p.done
						}
						mu.Lock()
						delete(asked, id)
						for _, other := range asked {
							if mine.Sub(other) > 2*c.delay {
								overtaken++
							}
						}
						turns[id]++
						all++
						mu.Unlock()
						time.Sleep(20 * time.Microsecond)
						node.Unlock(r.Key, 1, locks.Whole)
					}
				})
			}
			time.Sleep(5 * time.Second)
			close(stop)
			wg.Wait()
			t.Logf("%d nodes: %d turns, %v", n, all, turns)
			for id, k := range turns {
				if share := float64(k) * float64(n) / float64(all); share < 0.95 || share > 1.05 {
					t.Errorf("%d nodes: %s had %d of %d turns", n, id, k, all)
				}
			}
			if overtaken > 0 {
				t.Errorf("%d nodes: %d times one that came later went first", n, overtaken)
			}
			if n == 2 && all < 4000 { // a turn is an answer, and a lock that is held
				t.Errorf("only %d turns", all)
			}
			c.check()
		})
	}
}

// A node that may not enter when the answer to its guess comes keeps nobody
// waiting for longer than a guess lasts.
func TestAGuessOfASuspendedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		h, o := c.turns(locks.Flock, 20, 0)
		o.dead.Store(true)
		h.Unlock(locks.Key{File: "f", Class: locks.Flock}, 1, locks.Whole)
		time.Sleep(5 * time.Millisecond)
		began := time.Now()
		h.held(locks.Flock)
		if d := time.Since(began); d > 60*time.Millisecond {
			t.Errorf("its neighbour waits for %v", d)
		}
		c.check()
	})
}

// A guess ends with its epoch, with the tenure, and when the node leaves.
func TestAGuessEndsWithTheEpoch(t *testing.T) {
	for _, how := range []string{"epoch", "expelled", "leave"} {
		synctest.Test(t, func(t *testing.T) {
			c := newNet(t, 2)
			key := locks.Key{File: "f", Class: locks.Flock}
			h, o := c.turns(locks.Flock, 20, 0)
			if !o.asksBack(locks.Flock) {
				t.Fatal("not asked back")
			}
			switch how {
			case "epoch":
				c.view("n0", "n1")
			case "expelled":
				o.Freeze()
				o.Engine.Expelled("test")
				c.view(h.id)
				c.view("n0", "n1")
			case "leave":
				o.Leave()
			}
			if o.asksBack(locks.Flock) {
				t.Error("it still asks")
			}
			if n := c.frames(func() { h.Unlock(key, 1, locks.Whole) }); n != 0 && how != "leave" {
				t.Errorf("%d messages for a guess that is over", n)
			}
			synctest.Wait()
			time.Sleep(5 * time.Millisecond)
			h.held(locks.Flock)
			c.check()
		})
	}
}
