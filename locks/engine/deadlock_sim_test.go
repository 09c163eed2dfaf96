package engine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

var (
	graphs = flag.Int("engine.graphs", long.OrPure(80, 200), "number of random lock graphs of TestDeadlocksAreFound")
	graph  = flag.Uint64("engine.graph", 0, "run TestDeadlocksAreFound with this seed only")
)

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

// actor is a process of a deadlockRun.
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

// deadlockRun is one random lock graph.
type deadlockRun struct {
	*net
	rnd   *rand.Rand
	files int

	mu     sync.Mutex // guards what the actors have and want, and found
	actors []*actor
	found  int
}

func deadlocks(t *testing.T, seed uint64) (found int) {
	rnd := rand.New(rand.NewPCG(seed, 11))
	d := &deadlockRun{net: newTuned(t, 1+rnd.IntN(4), eagerly(seed)), rnd: rnd}
	for i := range 2 + rnd.IntN(6) {
		n := d.nodes[nodeID(rnd.IntN(len(d.nodes)))]
		d.actors = append(d.actors, &actor{pid: i + 1, node: n})
	}
	d.files = 1 + rnd.IntN(3)
	var wg sync.WaitGroup
	for _, a := range d.actors {
		todo := d.draw(a)
		pauses := make([]time.Duration, len(todo))
		for i := range pauses {
			pauses[i] = time.Duration(rnd.IntN(40)) * time.Millisecond
		}
		wg.Go(func() { d.act(a, todo, pauses) })
	}
	d.allEnd(&wg)
	return d.found
}

// draw is what an actor is to lock.
func (d *deadlockRun) draw(a *actor) (todo []*locks.Request) {
	for range 2 + d.rnd.IntN(4) {
		start := uint64(d.rnd.IntN(3))
		class := locks.Posix
		if d.rnd.IntN(8) == 0 {
			class = locks.Flock
		}
		r := byProcess(a.pid, class, fmt.Sprintf("f%d", d.rnd.IntN(d.files)), locks.Mode(1+d.rnd.IntN(2)),
			part(start, start+1+uint64(d.rnd.IntN(2))))
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
	return todo
}

// act locks one after the other, until there is a deadlock, and then gives up all.
func (d *deadlockRun) act(a *actor, todo []*locks.Request, pauses []time.Duration) {
	for i, r := range todo {
		time.Sleep(pauses[i])
		d.mu.Lock()
		a.wants = r
		d.mu.Unlock()
		_, err := a.node.Lock(nil, r)
		d.mu.Lock()
		d.ended(a, err)
		d.mu.Unlock()
		if err != nil {
			break
		}
	}
	time.Sleep(pauses[0])
	d.mu.Lock()
	a.has = nil
	d.mu.Unlock()
	for _, r := range todo {
		a.node.UnlockOwner(r.Key, r.Owner)
	}
}

// ended is told how the wait of an actor ended. REQUIRES: d.mu held.
func (d *deadlockRun) ended(a *actor, err error) {
	switch {
	case errors.Is(err, locks.ErrDeadlock):
		d.found++
		if !d.cycle(a) {
			d.t.Errorf("process %d was told of a deadlock that is none: %v", a.pid, err)
			d.logGraph(a.node)
		}
	case err != nil:
		d.t.Errorf("process %d: %v", a.pid, err)
	default:
		a.take(a.wants)
	}
	a.wants = nil
}

// cycle reports whether what a wants leads back to a.
func (d *deadlockRun) cycle(a *actor) bool {
	seen := map[*actor]bool{}
	var from func(*actor) bool
	from = func(x *actor) bool {
		for _, y := range d.actors {
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

// logGraph logs who has and wants what, and what is in the journal of n.
func (d *deadlockRun) logGraph(n *node) {
	for _, x := range d.actors {
		s := ""
		for _, h := range x.has {
			s += fmt.Sprintf(" %v %v %v", h.Key, h.Mode, h.Range)
		}
		if x.wants != nil {
			s += fmt.Sprintf(" WANTS %v %v %v", x.wants.Key, x.wants.Mode, x.wants.Range)
		}
		d.t.Logf("process %d on %s:%s", x.pid, x.node.id, s)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ev := range n.events {
		if ev.Reason != "" {
			d.t.Log(ev.Program.PID, ev.Step, ev.Reason)
		}
	}
}

// allEnd waits for the actors, and ends those that wait for ever.
func (d *deadlockRun) allEnd(wg *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		d.mu.Lock()
		for _, a := range d.actors {
			d.t.Errorf("process %d on %s holds %d locks and wants %+v", a.pid, a.node.id, len(a.has), a.wants)
		}
		d.mu.Unlock()
		for _, n := range d.nodes {
			n.Leave()
		}
		<-done
	}
}
