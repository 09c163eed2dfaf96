package engine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

var (
	graphs = flag.Int("engine.graphs", 200, "number of random lock graphs of TestDeadlocksAreFound")
	graph  = flag.Uint64("engine.graph", 0, "run TestDeadlocksAreFound with this seed only")
)

// byProcess is a request of process pid, as owner and as thread.
func byProcess(pid int, c locks.Class, file string, m locks.Mode, r locks.Range) *locks.Request {
	return &locks.Request{
		Key: locks.Key{File: file, Class: c}, Path: file, Owner: locks.OwnerID(pid), Handle: locks.HandleID(pid), Mode: m, Range: r,
		Program: locks.Program{PID: pid, TID: pid, Command: fmt.Sprintf("p%d", pid)},
	}
}

// A ring of five processes on five nodes: one is told, in under a second, and
// the others go on.
func TestRingOfFive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 5)
		one := locks.Range{Start: 0, End: 1}
		file := func(i int) string { return fmt.Sprintf("f%d", i%5) }
		node := func(i int) *node { return c.nodes[locks.NodeID(fmt.Sprintf("n%d", i))] }
		for i := range 5 {
			mustGrant(t, node(i).start(byProcess(100+i, locks.Posix, file(i), locks.Write, one)))
		}
		var ps []*pending
		for i := range 5 {
			ps = append(ps, node(i).start(byProcess(100+i, locks.Posix, file(i+1), locks.Write, one)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		told := -1
		for i, p := range ps {
			if !p.is() {
				continue
			}
			if told >= 0 || !errors.Is(p.err, locks.ErrDeadlock) {
				t.Fatalf("process %d: %v, and %d was told before", i, p.err, told)
			}
			told = i
		}
		if told != 4 {
			t.Fatalf("process %d was told, want the one that closed the ring", told)
		}
		if !strings.Contains(node(4).steps(), "withdrawn.") {
			t.Errorf("journal: %s", node(4).steps())
		}
		// It gives up what it has; then one after the other goes on.
		for i := 4; i >= 0; i-- {
			node(i).UnlockOwner(locks.Key{File: file(i), Class: locks.Posix}, locks.OwnerID(100+i))
			if i > 0 {
				mustGrant(t, ps[i-1])
				node(i-1).UnlockOwner(locks.Key{File: file(i), Class: locks.Posix}, locks.OwnerID(100+i-1))
			}
		}
	})
}

// Two readers that both want to write: each waits for the other's read lock.
func TestTwoUpgraders(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			c := newNet(t, nodes)
			a, b := c.nodes["n0"], c.nodes["n0"]
			if nodes == 2 {
				b = c.nodes["n1"]
			}
			all := locks.Range{Start: 0, End: 10}
			mustGrant(t, a.start(byProcess(1, locks.Posix, "f", locks.Read, all)))
			mustGrant(t, b.start(byProcess(2, locks.Posix, "f", locks.Read, all)))
			p := a.start(byProcess(1, locks.Posix, "f", locks.Write, all))
			time.Sleep(300 * time.Millisecond)
			q := b.start(byProcess(2, locks.Posix, "f", locks.Write, all))
			<-q.done
			if !errors.Is(q.err, locks.ErrDeadlock) {
				t.Fatalf("second upgrader: %v", q.err)
			}
			if p.is() {
				t.Fatal("the first one was ended as well")
			}
			b.UnlockOwner(locks.Key{File: "f", Class: locks.Posix}, 2)
			mustGrant(t, p)
		})
	}
}

// A chain is no cycle, however long it stands.
func TestChainIsNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		one := locks.Range{Start: 0, End: 1}
		var ps []*pending
		for i := range 3 {
			n := c.nodes[locks.NodeID(fmt.Sprintf("n%d", i))]
			mustGrant(t, n.start(byProcess(i+1, locks.Posix, fmt.Sprint(i), locks.Write, one)))
			if i > 0 {
				ps = append(ps, n.start(byProcess(i+1, locks.Posix, fmt.Sprint(i-1), locks.Write, one)))
			}
		}
		time.Sleep(5 * time.Minute)
		for _, p := range ps {
			if p.is() {
				t.Errorf("ended: %v", p.err)
			}
		}
		for _, n := range c.nodes {
			n.Leave()
		}
	})
}

// flock(2) has no EDEADLK: a cycle of flocks stays, as on one host. One that
// has an fcntl in it ends there.
func TestFlockIsNeverTheVictim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		mustGrant(t, a.start(byProcess(1, locks.Flock, "f", locks.Write, locks.Whole)))
		mustGrant(t, b.start(byProcess(2, locks.Flock, "g", locks.Write, locks.Whole)))
		p := a.start(byProcess(1, locks.Flock, "g", locks.Write, locks.Whole))
		q := b.start(byProcess(2, locks.Flock, "f", locks.Write, locks.Whole))
		time.Sleep(time.Minute)
		if p.is() || q.is() {
			t.Fatal("a flock was ended")
		}
		mustGrant(t, a.start(byProcess(3, locks.Flock, "h", locks.Write, locks.Whole)))
		mustGrant(t, b.start(byProcess(4, locks.Posix, "i", locks.Write, locks.Whole)))
		r := a.start(byProcess(3, locks.Posix, "i", locks.Write, locks.Whole))
		s := b.start(byProcess(4, locks.Flock, "h", locks.Write, locks.Whole))
		<-r.done
		if !errors.Is(r.err, locks.ErrDeadlock) || s.is() {
			t.Errorf("the fcntl: %v", r.err)
		}
		a.Leave()
		b.Leave()
	})
}

// TestDeadlocksAreFound lets random processes on random nodes take random
// locks and wait. All must come to their end, which they do only if no
// deadlock is missed; and whoever is told of one must be in a cycle.
// It is run again with -engine.graph.
func TestDeadlocksAreFound(t *testing.T) {
	first, last := uint64(1), uint64(*graphs)
	if *graph != 0 {
		first, last = *graph, *graph
	}
	found := 0
	for s := first; s <= last; s++ {
		synctest.Test(t, func(t *testing.T) { found += deadlocks(t, s) })
		if t.Failed() {
			t.Fatalf("to run this again: go test ./locks/engine -run %s -engine.graph %d", t.Name(), s)
		}
	}
	t.Logf("%d deadlocks in %d runs", found, last-first+1)
	if *graph == 0 && found < int(last)/10 {
		t.Errorf("only %d deadlocks in %d runs: the runs are too tame to show anything", found, last)
	}
}

// actor is a process of deadlocks.
type actor struct {
	pid   int
	node  *node
	has   []*locks.Request
	wants *locks.Request // while it waits
}

// take is a grant: it replaces what the process had of the bytes. Each byte is
// kept on its own.
func (a *actor) take(r *locks.Request) {
	a.has = slices.DeleteFunc(a.has, func(h *locks.Request) bool { return h.Key == r.Key && h.Range.Overlaps(r.Range) })
	for b := r.Range.Start; b < min(r.Range.End, 8); b++ {
		one := *r
		one.Range = locks.Range{Start: b, End: b + 1}
		a.has = append(a.has, &one)
	}
}

// blocks reports whether a lock stands in the way of a request of another.
func blocks(has, wants *locks.Request) bool {
	return has.Key == wants.Key && has.Range.Overlaps(wants.Range) && (has.Mode == locks.Write || wants.Mode == locks.Write)
}

func deadlocks(t *testing.T, seed uint64) (found int) {
	rnd := rand.New(rand.NewPCG(seed, 11))
	c := newTuned(t, 1+rnd.IntN(4), eagerly(seed))
	var mu sync.Mutex // guards the actors, and found
	var actors []*actor
	for i := range 2 + rnd.IntN(6) {
		n := c.nodes[locks.NodeID(fmt.Sprintf("n%d", rnd.IntN(len(c.nodes))))]
		actors = append(actors, &actor{pid: i + 1, node: n})
	}
	// cycle reports whether what a wants leads back to a.
	cycle := func(a *actor) bool {
		seen := map[*actor]bool{}
		var from func(*actor) bool
		from = func(x *actor) bool {
			for _, y := range actors {
				if y == x || x.wants == nil || !slices.ContainsFunc(y.has, func(h *locks.Request) bool { return blocks(h, x.wants) }) {
					continue
				}
				if y == a {
					return true
				}
				if !seen[y] {
					seen[y] = true
					if from(y) {
						return true
					}
				}
			}
			return false
		}
		return from(a)
	}
	files := 1 + rnd.IntN(3)
	var wg sync.WaitGroup
	for _, a := range actors {
		var todo []*locks.Request
		for range 2 + rnd.IntN(4) {
			start := uint64(rnd.IntN(3))
			class := locks.Posix
			if rnd.IntN(8) == 0 {
				class = locks.Flock
			}
			r := byProcess(a.pid, class, fmt.Sprintf("f%d", rnd.IntN(files)), locks.Mode(1+rnd.IntN(2)),
				locks.Range{Start: start, End: start + 1 + uint64(rnd.IntN(2))})
			if class == locks.Flock {
				// Each takes a flock once, or it would be given up in between;
				// they are taken in one order, so there is no cycle of
				// flocks alone.
				r.Key.File = "flock"
				r.Range = locks.Whole
				if slices.ContainsFunc(todo, func(x *locks.Request) bool { return x.Key.Class == locks.Flock }) {
					continue
				}
			}
			todo = append(todo, r)
		}
		pauses := make([]time.Duration, len(todo))
		for i := range pauses {
			pauses[i] = time.Duration(rnd.IntN(40)) * time.Millisecond
		}
		wg.Go(func() {
			for i, r := range todo {
				time.Sleep(pauses[i])
				mu.Lock()
				a.wants = r
				mu.Unlock()
				_, err := a.node.Lock(nil, r)
				mu.Lock()
				if errors.Is(err, locks.ErrDeadlock) {
					found++
					if !cycle(a) {
						t.Errorf("process %d was told of a deadlock that is none: %v", a.pid, err)
						for _, x := range actors {
							s := ""
							for _, h := range x.has {
								s += fmt.Sprintf(" %v %v %v", h.Key, h.Mode, h.Range)
							}
							if x.wants != nil {
								s += fmt.Sprintf(" WANTS %v %v %v", x.wants.Key, x.wants.Mode, x.wants.Range)
							}
							t.Logf("process %d on %s:%s", x.pid, x.node.id, s)
						}
						for _, ev := range a.node.events {
							if ev.Reason != "" {
								t.Log(ev.Program.PID, ev.Step, ev.Reason)
							}
						}
					}
				} else if err != nil {
					t.Errorf("process %d: %v", a.pid, err)
				} else {
					a.take(r)
				}
				a.wants = nil
				mu.Unlock()
				if err != nil {
					break
				}
			}
			time.Sleep(pauses[0])
			mu.Lock()
			a.has = nil
			mu.Unlock()
			for _, r := range todo {
				a.node.UnlockOwner(r.Key, r.Owner)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		mu.Lock()
		for _, a := range actors {
			t.Errorf("process %d on %s holds %d locks and wants %+v", a.pid, a.node.id, len(a.has), a.wants)
		}
		mu.Unlock()
		for _, n := range c.nodes {
			n.Leave()
		}
		<-done
	}
	return found
}

// unseen is a request of a program outside the PID namespace of the daemon.
func unseen(owner int, c locks.Class, file string, m locks.Mode) *locks.Request {
	r := byProcess(owner, c, file, m, locks.Whole)
	r.Program = locks.Program{}
	return r
}

// Programs that cannot be seen all have the number 0, and are not one process.
func TestProgramsThatAreNotSeenMakeNoDeadlock(t *testing.T) {
	for _, c := range []locks.Class{locks.Posix, locks.Flock} {
		for _, other := range []locks.NodeID{"n0", "n1"} {
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t, 2)
				a, b := n.nodes["n0"], n.nodes[other]
				defer a.Leave()
				defer b.Leave()
				mustGrant(t, a.start(unseen(1, c, "f", locks.Write)))
				p := b.start(unseen(2, c, "f", locks.Write))
				time.Sleep(time.Millisecond)
				q := b.start(unseen(3, locks.Posix, "f", locks.Write)) // of the other class, or behind p
				time.Sleep(time.Minute)
				if p.is() {
					t.Fatalf("%v on n0 and %s: the wait ended: %v", c, other, p.err)
				}
				a.Unlock(locks.Key{File: "f", Class: c}, 1, locks.Whole)
				mustGrant(t, p)
				b.Unlock(locks.Key{File: "f", Class: c}, 2, locks.Whole)
				mustGrant(t, q)
			})
		}
	}
}

// By the owner of their fcntl locks they are known, so that a cycle is found.
func TestDeadlockOfProgramsThatAreNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		defer a.Leave()
		defer b.Leave()
		mustGrant(t, a.start(unseen(1, locks.Posix, "f", locks.Write)))
		mustGrant(t, b.start(unseen(2, locks.Posix, "g", locks.Write)))
		p := a.start(unseen(1, locks.Posix, "g", locks.Write))
		time.Sleep(time.Millisecond)
		mustFail(t, b.start(unseen(2, locks.Posix, "f", locks.Write)), locks.ErrDeadlock)
		b.UnlockOwner(locks.Key{File: "g", Class: locks.Posix}, 2)
		mustGrant(t, p)
	})
}

// A lock can be held when the thread that took it is no more: a flock by who has
// inherited its descriptor. A thread that is given its number later is another.
func TestAThreadNumberThatIsUsedAgain(t *testing.T) {
	for _, again := range []uint64{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t, 1).nodes["n0"]
			defer n.Leave()
			by := func(task uint64, r *locks.Request) *locks.Request {
				r.Program.Process, r.Program.Task = task, task
				return r
			}
			mustGrant(t, n.start(by(1, byProcess(5, locks.Flock, "f", locks.Write, locks.Whole))))
			mustGrant(t, n.start(by(9, byProcess(9, locks.Posix, "g", locks.Write, locks.Whole))))
			p := n.start(by(9, byProcess(9, locks.Flock, "f", locks.Write, locks.Whole)))
			time.Sleep(time.Millisecond)
			r := by(again, byProcess(5, locks.Posix, "g", locks.Write, locks.Whole))
			r.Owner = 6
			q := n.start(r)
			time.Sleep(10 * time.Second)
			if told := q.is(); told != (again == 1) {
				t.Fatalf("the second thread of number 5, task %d: told %v, %v", again, told, q.err)
			}
			n.UnlockHandle(locks.Key{File: "f", Class: locks.Flock}, 5, "closed")
			mustGrant(t, p)
			n.UnlockOwner(locks.Key{File: "g", Class: locks.Posix}, 9)
			if again != 1 {
				mustGrant(t, q)
			}
		})
	}
}
