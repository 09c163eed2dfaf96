package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// opening is an open of file f by a process: the owner is the node.
func opening(pid, handle int, m locks.Mode) *locks.Request {
	r := req(locks.Open, 1, m, locks.Whole)
	r.Handle = locks.HandleID(handle)
	r.Program = locks.Program{PID: pid, TID: pid, Command: "opener"}
	return r
}

// stream makes requests one after the other, each held for hold, a new one
// every pause, until stop is closed. The n-th is what make returns. It counts
// those that were granted.
func stream(n *node, make func(i int) *locks.Request, pause, hold time.Duration, stop chan struct{}) (granted *int) {
	granted = new(int)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(pause):
			}
			r := make(i)
			p := n.start(r)
			go func() {
				<-p.done
				if p.err != nil {
					return
				}
				n.Engine.mu.Lock()
				*granted++
				n.Engine.mu.Unlock()
				time.Sleep(hold)
				n.UnlockHandle(r.Key, r.Handle, "closed")
			}()
		}
	}()
	return granted
}

// A node on which the file is always open by somebody gives it up for a writer
// on another node: soon when the opens are short, in the end when they are long.
func TestOpensThatJoinDoNotStarveAnotherNode(t *testing.T) {
	for _, tt := range []struct {
		name        string
		pause, hold time.Duration
		within      time.Duration
		mode        locks.Mode
	}{
		{"short readers", 20 * time.Millisecond, 100 * time.Millisecond, time.Second, locks.Read},
		{"short writers", 20 * time.Millisecond, 100 * time.Millisecond, time.Second, locks.Write},
		{"long readers", 500 * time.Millisecond, 3 * time.Second, time.Minute, locks.Read},
		{"readers of ten seconds", time.Second, 10 * time.Second, 2 * time.Minute, locks.Read},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 3)
				a, b := c.nodes["n0"], c.nodes["n1"]
				stop := make(chan struct{})
				granted := stream(a, func(i int) *locks.Request { return opening(2000+i, 100+i, tt.mode) }, tt.pause, tt.hold, stop)
				time.Sleep(2*tt.pause + tt.hold)
				for range 3 {
					began := time.Now()
					a.Engine.mu.Lock()
					before := *granted
					a.Engine.mu.Unlock()
					w := opening(1, 1, locks.Write)
					p := b.start(w)
					select {
					case <-p.done:
					case <-time.After(10 * time.Minute):
						t.Fatal("it waits for ever")
					}
					if p.err != nil {
						t.Fatal(p.err)
					}
					a.Engine.mu.Lock()
					joined := *granted - before
					a.Engine.mu.Unlock()
					t.Logf("after %v; %d have joined meanwhile", time.Since(began), joined)
					if time.Since(began) > tt.within {
						t.Errorf("it had to wait for %v", time.Since(began))
					}
					// One or two before this node hears of the other.
					if tt.hold < firstOvertake && joined > joinBatch+2 {
						t.Errorf("%d joined, want about %d", joined, joinBatch)
					}
					time.Sleep(100 * time.Millisecond)
					b.UnlockHandle(w.Key, w.Handle, "closed")
					time.Sleep(tt.hold)
				}
				// It goes on here, too.
				a.Engine.mu.Lock()
				before := *granted
				a.Engine.mu.Unlock()
				time.Sleep(10 * tt.pause)
				a.Engine.mu.Lock()
				if *granted == before {
					t.Error("nothing is granted on the other node any more")
				}
				a.Engine.mu.Unlock()
				close(stop)
				time.Sleep(time.Hour)
				a.Engine.mu.Lock()
				for _, en := range a.entries.all {
					if len(en.tickets) > 0 || len(en.gate.waiting) > 0 {
						t.Errorf("%d tickets are left, %d at the gate", len(en.tickets), len(en.gate.waiting))
					}
				}
				a.Engine.mu.Unlock()
				c.check()
			})
		})
	}
}

// A process that has the file open must be let in, whoever waits: it will not
// close it while it waits itself. So must a try.
func TestWhoHasTheFileOpenJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		mustGrant(t, a.start(opening(1, 1, locks.Read)))
		w := b.start(opening(9, 1, locks.Write))
		time.Sleep(100 * time.Millisecond)
		for i := range 2 * joinBatch {
			p := a.start(opening(50+i, 100+i, locks.Read))
			time.Sleep(10 * time.Millisecond)
			if got, want := p.is(), i < joinBatch; got != want {
				t.Errorf("open %d by another process: granted %v, want %v", i, got, want)
			}
		}
		p := a.start(opening(1, 2, locks.Write))
		time.Sleep(10 * time.Millisecond)
		if !p.is() {
			t.Error("the process that has the file open waits for itself")
		}
		if _, err := a.try(opening(77, 77, locks.Read)); err != nil {
			t.Errorf("a try: %v", err)
		}
		if w.is() {
			t.Error("the writer was let in beside them")
		}
	})
}

// What waits at the gate is seen, and can be interrupted and lost like any
// other wait.
func TestWaitingAtTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		mustGrant(t, a.start(opening(1, 1, locks.Read)))
		b.start(opening(9, 1, locks.Write))
		time.Sleep(100 * time.Millisecond)
		var ps []*pending
		for i := range joinBatch + 3 {
			ps = append(ps, a.start(opening(50+i, 100+i, locks.Read)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		if _, waiting := a.Count(); waiting != 3 {
			t.Fatalf("%d wait, want 3", waiting)
		}
		seen := 0
		for _, l := range a.Locks() {
			if l.State == Waits {
				seen++
			}
		}
		if seen != 3 {
			t.Errorf("%d of 3 waits are seen", seen)
		}
		first, second, third := ps[joinBatch], ps[joinBatch+1], ps[joinBatch+2]
		close(first.cancel)
		<-first.done
		if first.err != locks.ErrInterrupted {
			t.Errorf("interrupted: %v", first.err)
		}
		// The open file is closed while it waits; see Engine.UnlockHandle.
		a.UnlockHandle(locks.Key{File: "f", Class: locks.Open}, locks.HandleID(100+joinBatch+1), "closed")
		<-second.done
		if second.err == nil {
			t.Error("granted to an open file that is closed")
		}
		// One that comes again within a second has not lost its time.
		time.Sleep(500 * time.Millisecond)
		again := a.start(opening(50+joinBatch, 500, locks.Read))
		time.Sleep(400 * time.Millisecond)
		if !again.is() {
			t.Error("the one that came again waits for more than a second in all")
		}
		if !third.is() {
			t.Error("the one that waits for a second is not let in")
		}
		a.Engine.Expelled("for this test")
		c.check()
	})
}

// Readers that come all the time, from all nodes, and hold for long, do not
// keep a writer out; nor do writers keep readers out.
func TestNobodyStarves(t *testing.T) {
	for _, tt := range []struct {
		name         string
		stream, wait locks.Mode
		pause, hold  time.Duration
		within       time.Duration
	}{
		{"a writer among short readers", locks.Read, locks.Write, 50 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second},
		{"a writer among long readers", locks.Read, locks.Write, 700 * time.Millisecond, 3 * time.Second, 2 * time.Minute},
		{"a reader among writers", locks.Write, locks.Read, 300 * time.Millisecond, 50 * time.Millisecond, 5 * time.Second},
		{"a writer among writers", locks.Write, locks.Write, 300 * time.Millisecond, 50 * time.Millisecond, 5 * time.Second},
	} {
		for _, class := range []locks.Class{locks.Flock, locks.Posix} {
			t.Run(tt.name+" by "+class.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newNet(t, 3)
					stop := make(chan struct{})
					for i, id := range []locks.NodeID{"n0", "n1", "n2"} {
						time.Sleep(tt.pause / 3)
						stream(c.nodes[id], func(k int) *locks.Request {
							return req(class, 1000*(i+1)+k, tt.stream, locks.Whole)
						}, tt.pause, tt.hold, stop)
					}
					time.Sleep(5 * tt.hold)
					for round := range 5 {
						w := req(class, 10+round, tt.wait, locks.Whole)
						began := time.Now()
						p := c.nodes["n1"].start(w)
						select {
						case <-p.done:
						case <-time.After(10 * time.Minute):
							t.Fatal("it waits for ever")
						}
						if p.err != nil {
							t.Fatal(p.err)
						}
						t.Logf("after %v", time.Since(began))
						if time.Since(began) > tt.within {
							t.Errorf("it had to wait for %v", time.Since(began))
						}
						c.nodes["n1"].UnlockHandle(w.Key, w.Handle, "closed")
					}
					close(stop)
					time.Sleep(time.Hour)
					c.check()
				})
			})
		}
	}
}

// A node with many waiters of its own does not serve them before one of another
// node that has asked earlier.
func TestOwnWaitersDoNotComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		first := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(first))
		other := b.start(req(locks.Flock, 5, locks.Write, locks.Whole))
		time.Sleep(50 * time.Millisecond)
		var own []*pending
		for i := range 20 {
			own = append(own, a.start(req(locks.Flock, 100+i, locks.Write, locks.Whole)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
		a.Unlock(first.Key, 1, locks.Whole)
		mustGrant(t, other)
		for i, p := range own {
			if p.is() {
				t.Errorf("number %d of this node went first", i)
			}
		}
		b.Unlock(first.Key, 5, locks.Whole)
		for i, p := range own { // in their order
			mustGrant(t, p)
			a.Unlock(first.Key, locks.OwnerID(100+i), locks.Whole)
		}
	})
}

// A process that holds a lock to read and asks for another one, through another
// open file, is not kept waiting behind a writer that waits for the first one.
func TestNestedReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		outer, inner := req(locks.Flock, 1, locks.Read, locks.Whole), req(locks.Flock, 2, locks.Read, locks.Whole)
		inner.Program = outer.Program
		mustGrant(t, a.start(outer))
		w := b.start(req(locks.Flock, 9, locks.Write, locks.Whole))
		time.Sleep(50 * time.Millisecond)
		p, q := a.start(inner), a.start(req(locks.Flock, 3, locks.Read, locks.Whole))
		time.Sleep(20 * time.Millisecond)
		if !p.is() {
			t.Error("the inner lock waits for the outer one")
		}
		if q.is() {
			t.Error("a reader of another process went before the writer")
		}
		a.Unlock(outer.Key, 1, locks.Whole)
		a.Unlock(outer.Key, 2, locks.Whole)
		mustGrant(t, w)
	})
}

// Two threads of one process wait for the same and are both interrupted: both
// keep a place. An open keeps its place, too, although it comes again with
// another handle.
func TestPlacesOfThreadsAndOpens(t *testing.T) {
	for _, class := range []locks.Class{locks.Posix, locks.Open} {
		t.Run(class.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 3)
				hold := req(class, 1, locks.Write, locks.Whole)
				mustGrant(t, c.nodes["n0"].start(hold))
				mine := func(handle int) *locks.Request {
					r := req(class, 1, locks.Write, locks.Whole)
					r.Handle = locks.HandleID(handle)
					return r
				}
				b := c.nodes["n1"]
				p, q := b.start(mine(1)), b.start(mine(2))
				time.Sleep(50 * time.Millisecond)
				later := c.nodes["n2"].start(req(class, 1, locks.Write, locks.Whole))
				time.Sleep(50 * time.Millisecond)
				for _, x := range []*pending{p, q} {
					close(x.cancel)
					<-x.done
				}
				time.Sleep(100 * time.Millisecond)
				p, q = b.start(mine(3)), b.start(mine(4))
				time.Sleep(50 * time.Millisecond)
				c.nodes["n0"].UnlockHandle(hold.Key, hold.Handle, "closed")
				mustGrant(t, p)
				mustGrant(t, q) // of the same owner
				time.Sleep(50 * time.Millisecond)
				if later.is() {
					t.Fatal("beside others")
				}
				b.UnlockHandle(hold.Key, 3, "closed")
				time.Sleep(50 * time.Millisecond)
				if class == locks.Open && later.is() {
					t.Error("one of the two has lost its place")
				}
				b.UnlockHandle(hold.Key, 4, "closed")
				mustGrant(t, later)
			})
		})
	}
}
