package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

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
