package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/p2p/cluster"
)

// Heartbeats are answered, and so the others go on, whatever one node waits
// for: nothing that may block is in the way of its answers.
func TestAnswersWaitForNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		block func(n *node, g gate)
		late  bool // the node must be a member first
		limit time.Duration
	}{
		{name: "storage", block: func(n *node, g gate) { n.storage.set(g) }, late: true},
		{name: "state directory", block: func(n *node, g gate) { n.save.set(g) }},
		{name: "journal and log", block: func(n *node, g gate) { n.notice.set(g) }},
		{name: "address book", block: func(n *node, g gate) { n.want.set(g) }, late: true},
		{name: "write-out before a new epoch", block: func(n *node, g gate) { n.state.set(g) }},
		{name: "engine", block: func(n *node, g gate) { n.engine.stuck.set(g) }, late: true, limit: 9 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, b := w.add(), w.add()
				g := make(gate)
				a.start()
				w.await("a alone", 2*time.Second, func() bool { return w.together(a) })
				if !c.late {
					c.block(b, g)
				}
				b.start()
				w.await("both in one view, with tenure", 3*time.Second, func() bool {
					return len(a.Status().View.Members) == 2 && a.Live(0) && a.epoch() == b.epoch() && b.Live(0)
				})
				if c.late {
					w.await("both together", 3*time.Second, func() bool { return w.together(a, b) })
					c.block(b, g)
				}
				e := a.epoch()
				limit := max(c.limit, 30*time.Second)
				if c.limit > 0 {
					limit = c.limit
				}
				w.hold("a is live in the same view", limit, func() bool { return a.Live(0) && a.epoch() == e })
				close(g)
				w.await("both together", 2*time.Second, func() bool { return w.together(a, b) })
				if a.epoch() != e {
					t.Errorf("epoch %d after %d", a.epoch(), e)
				}
			})
		})
	}
}

// A peer that takes nothing off its connections does not hold up what is said
// to the others.
func TestASlowPeerHoldsUpNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(3)
		n[2].receive.set(make(gate))
		dropped := false
		var pause time.Time
		w.hold("the others go on", 40*time.Second, func() bool {
			dropped = dropped || len(n[0].Status().View.Members) == 2
			switch live := w.together(n[:2]...) || n[0].Live(0) && n[1].Live(0); {
			case live || !dropped && time.Until(pause) > 0:
				pause = time.Time{}
				return true
			case pause.IsZero():
				// They wait for the tenure of the silent one to end, once.
				pause = time.Now().Add(7 * time.Second)
				return true
			default:
				return time.Now().Before(pause)
			}
		})
		if !w.together(n[:2]...) {
			t.Error("the two that hear each other are not together")
		}
	})
}

// An engine that has hung for longer than the limit ends the node: it promises
// nothing any more, so that the others go on without it.
func TestAStuckEngineEndsTheNode(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(2)
		g := make(gate)
		n[1].engine.stuck.set(g)
		w.hold("it is given time", 9*time.Second, func() bool { return n[1].Live(0) })
		var err error
		select {
		case err = <-n[1].ended:
		case <-time.After(3500 * time.Millisecond):
			t.Fatal("it goes on")
		}
		if !errors.Is(err, cluster.ErrStuck) || n[1].Live(0) {
			t.Fatalf("ended with %v, live %v", err, n[1].Live(0))
		}
		w.await("the other goes on", 6500*time.Millisecond, func() bool { return w.together(n[0]) })
		close(g)
	})
}

// A node whose engine cannot use what another one says that it holds ends, and
// the others go on without it.
func TestAStateThatCannotBeUsed(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(3)
		n[1].engine.unusable.Store(true)
		n[2].kill()
		select {
		case err := <-n[1].ended:
			if !strings.Contains(fmt.Sprint(err), "cannot be used") || n[1].Live(0) {
				t.Errorf("ended with %v, live %v", err, n[1].Live(0))
			}
		case <-time.After(time.Minute):
			t.Fatal("it goes on")
		}
		w.await("the other goes on", time.Minute, func() bool { return w.together(n[0]) })
	})
}

// The engine is stuck at the very end: nobody waits for it for ever.
func TestAStuckEngineAtTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(1)
		g := make(gate)
		n[0].engine.stuck.set(g)
		time.Sleep(1500 * time.Millisecond) // it is busy with a ping
		go n[0].stop()
		select {
		case err := <-n[0].ended:
			if !errors.Is(err, cluster.ErrStuck) {
				t.Errorf("ended with %v", err)
			}
		case <-time.After(25 * time.Second):
			t.Error("Run does not return")
		}
		close(g)
	})
}

// A process that was stopped for long does not take its engine for stuck.
func TestSleepIsNotTheEnginesFault(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(2)
		g := make(gate)
		n[1].engine.stuck.set(g)
		time.Sleep(1500 * time.Millisecond) // it is busy with a ping
		stopped := make(gate)
		n[1].stopped.set(stopped)
		time.Sleep(60 * time.Second)
		close(stopped)
		time.Sleep(5 * time.Second) // it goes on with the ping
		close(g)
		w.await("it is back", 5*time.Second, func() bool { return w.together(n...) })
		select {
		case err := <-n[1].ended:
			t.Errorf("ended with %v", err)
		default:
		}
	})
}
