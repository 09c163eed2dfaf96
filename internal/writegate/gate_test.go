package writegate

import (
	"errors"
	"runtime"
	"sync"
	"testing"
)

func TestApart(t *testing.T) {
	count := func(n *int) func() error { return func() error { *n++; return nil } }
	t.Run("nobody writes", func(t *testing.T) {
		var g Gate
		done := 0
		if err := g.Apart(count(&done), func() { t.Error("undone") }); err != nil || done != 1 {
			t.Errorf("done %d times, %v", done, err)
		}
	})
	t.Run("a write before", func(t *testing.T) {
		var g Gate
		writes, end, all := make(chan bool), make(chan bool), sync.WaitGroup{}
		ended := false // under g.mu
		all.Go(func() {
			g.Write(func() error { close(writes); <-end; ended = true; return nil })
		})
		<-writes
		all.Go(func() {
			g.Apart(func() error {
				if !ended {
					t.Error("done beside a write")
				}
				return nil
			}, func() { t.Error("undone") })
		})
		for g.mu.TryRLock() { // until somebody keeps writes away
			g.mu.RUnlock()
			runtime.Gosched()
		}
		close(end)
		all.Wait()
	})
	t.Run("a write meanwhile", func(t *testing.T) {
		var g Gate
		done, undone := 0, 0
		err := g.Apart(func() error {
			if done++; done == 1 {
				return g.Write(func() error { return nil })
			}
			return nil
		}, func() { undone++ })
		if err != nil || done != 2 || undone != 1 {
			t.Errorf("done %d times, undone %d, %v", done, undone, err)
		}
	})
	t.Run("an error", func(t *testing.T) {
		var g Gate
		bad := errors.New("bad")
		err := g.Apart(func() error {
			_ = g.Write(func() error { return nil })
			return bad
		}, func() { t.Error("undone") })
		if err != bad {
			t.Error(err)
		}
	})
	t.Run("no gate", func(t *testing.T) {
		var g *Gate
		done := 0
		if err := errors.Join(g.Write(count(&done)), g.Apart(count(&done), nil)); err != nil || done != 2 {
			t.Errorf("done %d times, %v", done, err)
		}
	})
}
