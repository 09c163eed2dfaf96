package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// The answer to F_GETLK can come when the node leaves, before the program that
// asked has taken note of that.
func TestAnAnswerComesAfterTheNodeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		done := make(chan error)
		go func() {
			_, err := a.Engine.Test(nil, req(locks.Posix, 1, locks.Write, locks.Whole))
			done <- err
		}()
		synctest.Wait()
		a.Engine.mu.Lock() // for all that comes before the program
		if len(a.queries.open) != 1 {
			t.Fatalf("%d questions are open", len(a.queries.open))
		}
		for id := range a.queries.open {
			a.queries.fail(errClosed)
			a.inbox.handle("n1", holdersFrame(id, nil))
		}
		a.Engine.mu.Unlock()
		if err := <-done; !errors.Is(err, errClosed) {
			t.Errorf("%v, want %v", err, errClosed)
		}
	})
}

// The table of locks is made in parts, and the tenure can end in between: what is
// lost then is not asked for what it waits for, as there is no view.
func TestLocksAreListedWhileAllAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		file := func(name string, owner int) *locks.Request {
			r := at("x/"+name, req(locks.Flock, owner, locks.Write, locks.Whole))
			r.Key.File = name
			return r
		}
		mustGrant(t, a.start(file("f", 1)))
		mustGrant(t, a.start(file("g", 2)))
		c.rules("x")
		c.view("n0", "n1") // what is held stays so beside the new machines
		f, g := a.start(file("f", 3)), a.start(file("g", 4))
		mustWait(t, f)
		mustWait(t, g)

		a.Engine.mu.Lock()
		a.Engine.mu.rest = func() time.Duration {
			a.Engine.mu.rest = nil
			return time.Millisecond // before the second file
		}
		a.Engine.mu.Unlock()
		listed := make(chan []LockInfo)
		go func() { listed <- a.Locks() }()
		synctest.Wait()
		a.Engine.Expelled("stopped for too long")
		if all := <-listed; len(all) != 1 {
			t.Errorf("listed %+v, want what came before the loss", all)
		}
		mustFail(t, f, locks.ErrLost)
		mustFail(t, g, locks.ErrLost)
	})
}
