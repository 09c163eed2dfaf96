package long

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func turnsOf(t *testing.T, atOnce int) *turns {
	t.Helper()
	name := filepath.Join(t.TempDir(), "locked")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return newTurns(func() string { return name }, atOnce)
}

// No more have a turn at once than may, and all get one.
func TestTurns(t *testing.T) {
	t.Parallel()
	const all, atOnce = 12, 3
	ts := turnsOf(t, atOnce)
	var running, most atomic.Int32
	var done sync.WaitGroup
	full := make(chan struct{}) // closed when as many have a turn as may
	for range all {
		done.Go(func() {
			f := ts.take()
			if f == nil {
				t.Error("no turn")
				return
			}
			defer f.Close()
			n := running.Add(1)
			defer running.Add(-1)
			if n == atOnce && most.Swap(n) < atOnce {
				close(full)
			}
			if n > atOnce {
				t.Errorf("%d have a turn at once", n)
			}
			select {
			case <-full:
			case <-time.After(time.Minute):
				t.Error("waited too long for others to have a turn, too")
			}
		})
	}
	done.Wait()
	missing := filepath.Join(t.TempDir(), "missing")
	if f := newTurns(func() string { return missing }, atOnce).take(); f != nil {
		t.Error("a turn by a file that is not there")
	}
}

// The turn of a test is that of its subtests, and is given up when all have ended.
func TestTurnOfSubtests(t *testing.T) {
	t.Parallel()
	ts := turnsOf(t, 1)
	for range 2 {
		t.Run("test", func(t *testing.T) {
			ts.await(t)
			first := ts.of["TestTurnOfSubtests"].file
			for range 3 {
				t.Run("", func(t *testing.T) { ts.await(t) })
			}
			if x := ts.of["TestTurnOfSubtests"]; x == nil || x.file != first || first == nil {
				t.Error("it has another turn, or none")
			}
		})
		if len(ts.of) > 0 {
			t.Error("it has not been given up")
		}
	}
	t.Run("without", func(t *testing.T) {
		held := ts.take()
		defer held.Close()
		ts.pass(t)
		ts.await(t) // would be for ever
	})
}
