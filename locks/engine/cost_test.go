package engine

import (
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// costly is an engine without a goroutine, the only one of its cluster or one of
// several that never answer.
func costly(tb testing.TB, nodes int) *Engine { return tuned(tb, nodes, nil) }

// tuned is costly with other options.
func tuned(tb testing.TB, nodes int, tune func(testing.TB, *Options)) *Engine {
	tb.Helper()
	o := Options{
		Transport: nothing{}, Files: nothing{}, Recorder: nothing{}, Log: slog.New(slog.DiscardHandler),
		Algorithms: allAlgorithms,
		Rule:       func(string) string { return "rw" },
		Live:       func(time.Duration) bool { return true },
		MaxLocks:   1 << 30,
	}
	if tune != nil {
		tune(tb, &o)
	}
	e := New(o)
	begin(tb, e, "n0", nodeIDs(nodes)...)
	return e
}

// begin installs the first view of an engine; nobody holds anything.
func begin(tb testing.TB, e *Engine, self locks.NodeID, members ...locks.NodeID) {
	tb.Helper()
	e.Install(&locks.View{Epoch: 1, Self: self, Members: members})
	for _, m := range members {
		if err := e.Sync(m, 1, []byte{0}); err != nil {
			tb.Fatal(err)
		}
	}
}

// waitUntil is for what other goroutines do.
func waitUntil(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			tb.Fatalf("not in a minute: %s", what)
		}
	}
}

// readersAndWriters is an engine with n readers that hold a file and n writers
// that wait for it. end ends the waiting.
func readersAndWriters(tb testing.TB, n int, c locks.Class) (e *Engine, end func()) {
	e = costly(tb, 1)
	for i := range n {
		if _, err := e.Lock(nil, byProcess(i+1, c, "f", locks.Read, locks.Whole)); err != nil {
			tb.Fatal(err)
		}
	}
	done := make(chan struct{})
	for i := range n {
		go func() {
			e.Lock(nil, byProcess(n+i+1, c, "f", locks.Write, locks.Whole))
			done <- struct{}{}
		}()
	}
	waitUntil(tb, "all writers wait", func() bool {
		_, waiting := e.Count()
		return waiting == n
	})
	return e, func() {
		e.Leave()
		for range n {
			<-done
		}
	}
}

// A thousand writers that wait for a thousand readers do not keep the engine
// busy with looking for deadlocks.
func TestDeadlockSweepOfManyWaiters(t *testing.T) {
	for _, c := range []locks.Class{locks.Posix, locks.Flock} {
		locktest.Growth(t, 100, func(n int) func() {
			e, end := readersAndWriters(t, n, c)
			t.Cleanup(end)
			return func() {
				e.mu.Lock()
				defer e.mu.Unlock()
				for i := range 4 {
					e.sweeper.sweep(time.Now().Add(time.Duration(i) * 10 * time.Second))
				}
			}
		})
	}
}

func BenchmarkDeadlockSweep(b *testing.B) {
	e, end := readersAndWriters(b, 1000, locks.Posix)
	defer end()
	for b.Loop() {
		e.mu.Lock()
		for _, t := range e.waiters.sorted() {
			e.deadlocks.start(t)
		}
		e.mu.Unlock()
	}
}

// piece is the i-th range of a file with a gap behind it.
func piece(pid, i int, m locks.Mode) *locks.Request {
	return byProcess(pid, locks.Posix, "f", m, locks.Range{Start: 2 * uint64(i), End: 2*uint64(i) + 1})
}

// longest is for how long the engine was held at a time since the last call.
func (e *Engine) longest() time.Duration { return time.Duration(e.mu.longest.Swap(0)) }

var ranges = flag.Int("engine.ranges", 10_000, "how many ranges a program has in TestManyRanges")

// TestManyRanges logs for how long one program that has very many locks holds up
// all others; with -engine.ranges 250000 that is as many as it may have.
func TestManyRanges(t *testing.T) {
	n := *ranges
	for _, alg := range []string{"rw", "ring"} {
		e := costly(t, 1)
		e.o.Rule = func(string) string { return alg }
		k := locks.Key{File: "f", Class: locks.Posix}
		step := func(what string, f func()) {
			e.longest()
			began := time.Now()
			f()
			t.Logf("%s %s: %v in all, the engine was held for %v", alg, what, time.Since(began), e.longest())
			for _, en := range e.entries.all {
				if n > 10_000 {
					continue
				}
				if err := en.machine.Check(); err != nil {
					t.Fatal(err)
				}
			}
		}
		take := func() {
			for i := range n {
				if _, err := e.Lock(nil, piece(1, i, locks.Write)); err != nil {
					t.Fatal(err)
				}
			}
		}
		count := func(want int) {
			t.Helper()
			if held, waiting := e.Count(); held != want || waiting != 0 {
				t.Fatalf("%d held, %d wait, want %d", held, waiting, want)
			}
		}
		step("take", take)
		step("ask here", func() {
			c, err := e.Test(nil, all(2, locks.Write))
			if err != nil || c == nil || c.Range.Start != 0 {
				t.Fatal(c, err)
			}
		})
		step("ask from elsewhere", func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if cs := e.queries.conflicts(k, locks.Write, locks.Whole, nil, maxConflicts); len(cs) == 0 {
				t.Fatal(cs)
			}
		})
		step("list", func() { e.Locks() })
		step("replace", func() {
			if _, err := e.Lock(nil, all(1, locks.Write)); err != nil {
				t.Fatal(err)
			}
		})
		count(1)
		e.UnlockOwner(k, 1)
		take()
		step("drop", func() { e.UnlockOwner(k, 1) })
		count(0)
		take()
		step("state", func() { e.Freeze(); e.State() })
		step("leave", func() { e.Leave() })
	}
}
