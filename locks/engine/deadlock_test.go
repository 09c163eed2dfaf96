package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
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
		node := func(i int) *node { return c.nodes[nodeID(i)] }
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
			n := c.nodes[nodeID(i)]
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
