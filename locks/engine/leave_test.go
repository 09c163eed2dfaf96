package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

func TestLeaveEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, b.start(w))
		p := a.start(w)
		q := make(chan error, 1)
		go func() { _, err := a.Test(nil, req(locks.Posix, 1, locks.Write, locks.Whole)); q <- err }()
		c.mu.Lock()
		c.delay = time.Hour
		c.mu.Unlock()
		go func() { _, err := a.Test(nil, req(locks.Posix, 1, locks.Write, locks.Whole)); q <- err }()
		synctest.Wait()
		a.Leave()
		<-p.done
		if !errors.Is(p.err, locks.ErrUnavailable) {
			t.Errorf("err = %v", p.err)
		}
		for range 2 {
			if err := <-q; err != nil && !errors.Is(err, locks.ErrUnavailable) {
				t.Errorf("Test: %v", err)
			}
		}
		if _, err := a.try(w); !errors.Is(err, locks.ErrUnavailable) {
			t.Errorf("after Leave: %v", err)
		}
	})
}

// The end of one wait can let another one in, also at the end of all: a reader
// behind a writer.
func TestLeaveWithWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Read, locks.Whole)))
		writer := a.start(req(locks.Posix, 2, locks.Write, locks.Whole))
		synctest.Wait()
		reader := a.start(req(locks.Posix, 3, locks.Read, locks.Whole))
		if writer.is() || reader.is() {
			t.Fatal("they do not wait")
		}
		a.Leave()
		if !writer.is() || !errors.Is(writer.err, locks.ErrUnavailable) || !reader.is() {
			t.Errorf("after Leave: %v, %v", writer.err, reader.err)
		}
	})
}

// What a node holds when it leaves is free when it has left, not when it begins
// to: its programs may have writes on their way. And tokens go on to rise.
func TestHeldUntilItHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := req(locks.Posix, 1, locks.Write, locks.Whole)
		last := mustGrant(t, a.start(w))
		a.Leave()
		a.Unlock(w.Key, 1, locks.Whole)
		a.UnlockHandle(w.Key, w.Handle, "closed")
		p := b.start(w)
		time.Sleep(5 * time.Second)
		c.view("n0", "n1", "n2") // of something else
		time.Sleep(5 * time.Second)
		if p.is() {
			t.Fatalf("granted with token %v while n0 is a member: %v", p.grant.Token, p.err)
		}
		c.view("n1", "n2")
		if g := mustGrant(t, p); g.Token <= last.Token {
			t.Errorf("token %v after %v", g.Token, last.Token)
		}
		if s := a.steps(); s != "requested granted released." {
			t.Errorf("the journal has %q", s)
		}
		if lost := a.Engine.Expelled("late"); len(lost) > 0 || a.steps() != "requested granted released." {
			t.Errorf("what was given up is lost, too: %v, %q", lost, a.steps())
		}
	})
}

// The same when the file is closed through which they wait.
func TestCloseWithWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Read, locks.Whole)))
		w, r := req(locks.Posix, 2, locks.Write, locks.Whole), req(locks.Posix, 3, locks.Read, locks.Whole)
		r.Handle = w.Handle
		writer := a.start(w)
		synctest.Wait()
		reader := a.start(r)
		if writer.is() || reader.is() {
			t.Fatal("they do not wait")
		}
		a.UnlockHandle(w.Key, w.Handle, "closed")
		if !writer.is() || !reader.is() {
			t.Error("a wait goes on")
		}
	})
}
