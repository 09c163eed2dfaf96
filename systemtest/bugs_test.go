package systemtest

import (
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
)

// A planted bug is a mistake at a seam between the parts. If no schedule
// breaks, the rule is not needed or the simulator cannot see. Each has the kind
// of schedule that finds it soonest.
var bugs = []struct {
	name  string
	seeds int   // within how many it has to be found; about four times what it takes
	soon  int64 // a seed from which on few are needed, if many are from 0 on
	found func(t *testing.T, seed int64, bug string) error
}{
	{"promises while proposing", 400, 63, random},
	{"tenure from receipt", 200, 0, random},
	{"no barrier of states", 50, 0, random},
	{"granting before the last state", 50, 0, random},
	{"frames of old epochs are taken", 200, 0, random},
	{"no freeze", 400, 132, killed},
	{"a state of before the freeze", 50, 0, random},
	{"no check before I/O", 200, 84, random},
	{"liveness is cached", 200, 33, random},
	{"the expelled keeps its locks", 200, 0, random},
	{"what waits is not resumed", 200, 0, random},
	{"a frame is lost", 20, 0, random},
	{"nothing is read anew", 20, 0, random},
	{"a link replaces what is there", 400, 23, random},
	{"nothing is written out", 20, 0, writeBack},
	{"a state without a write-out", 50, 0, writeBack},
	{"the engine is not told of new rules", 50, 0, ruled},
	{"no syncfs before a replacement", 100, 0, replaced},
	{"a fence command that does nothing", 40, 0, fenced},
	{"a former self is not replaced", 5, 0, replaced},
	{"a successor that is late keeps its locks", 100, 26, takeovers},
	{"a successor that is late keeps its locks", 300, 64, killed},
	{"a ledger of before is taken", 200, 0, killed},
	{"a look is stamped when it ends", 50, 0, stoppedAfterListing},
}

func TestPlantedBugsAreFound(t *testing.T) {
	long.NoRace(t)
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			for i := range int64(b.seeds) {
				seed := (i + long.Or(b.soon, 0)) % int64(b.seeds)
				if err := b.found(t, seed, b.name); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Errorf("not found in %d schedules", b.seeds)
		})
	}
}

// What finds the bugs must find nothing without them.
func TestNoBugIsFoundWithoutOne(t *testing.T) {
	long.NoRace(t)
	for name, found := range map[string]func(*testing.T, int64, string) error{
		"fenced": fenced, "ruled": ruled, "writeBack": writeBack, "replaced": replaced, "stoppedAfterListing": stoppedAfterListing,
	} {
		for seed := range long.Or(int64(10), 30) {
			if err := found(t, seed, ""); err != nil {
				t.Errorf("%s, seed %d: %v", name, seed, err)
				break
			}
		}
	}
}

// finder finds a bug by the random schedules of some options.
func finder(of func(seed int64) options) func(*testing.T, int64, string) error {
	return func(t *testing.T, seed int64, bug string) error {
		o := of(seed)
		o.bug = bug
		return schedule(t, o).err
	}
}

var (
	random    = finder(randomOptions)
	takeovers = finder(takeoverOptions)
	killed    = finder(killOptions)
	ruled     = finder(func(seed int64) options {
		o := randomOptions(seed)
		o.rules = true
		return o
	})
	writeBack = finder(func(seed int64) options {
		o := randomOptions(seed)
		o.writeBack = true
		return o
	})
)

// A node is cut off while the storage keeps back what it has written: only the
// fence command keeps that from arriving after what the others write.
func fenced(t *testing.T, seed int64, bug string) error {
	return directed(t, options{seed: uint64(seed), bug: bug, fence: true, cutsOff: true, think: 20 * ms}, func(w *world) {
		p := w.together(2)
		w.run(w.between(0, time.Second))
		p[1].disk.hang(20 * time.Second)
		w.isolate(p[1:], p[:1], false, true, true, 20*time.Second)
		w.run(25 * time.Second)
	})
}

// directed runs a story; its outcome is that of the checks.
func directed(t *testing.T, o options, story func(w *world)) error {
	t.Helper()
	o.drift = 1000
	return inBubble(t, o, story).check.err
}

// together starts n nodes and waits until they are in one view.
func (w *world) together(n int) []*proc {
	for i := range n {
		w.start(string(rune('a' + i)))
		w.run(20 * ms)
	}
	w.runUntil(60*time.Second, w.settled)
	w.run(2 * time.Second)
	return w.running()
}

// A daemon is killed while its programs write, and started again at once: its
// locks come free in a moment, and not before its last writes have arrived.
func replaced(t *testing.T, seed int64, bug string) error {
	return directed(t, options{seed: uint64(seed), bug: bug, think: 20 * ms}, func(w *world) {
		p := w.together(2)
		w.run(w.between(0, time.Second))
		w.restart(p[1], w.between(0, 20*ms), true)
		w.run(30 * ms)
		if !w.runUntil(time.Second, w.settled) && !w.check.failed() {
			w.check.failf("the locks of a daemon that was killed are not free within a second")
		}
		w.run(time.Second)
	})
}

// A sole member is stopped between its listing and the reply; a stranger takes
// over; the old listing is processed.
func stoppedAfterListing(t *testing.T, seed int64, bug string) error {
	return directed(t, options{seed: uint64(seed), bug: bug}, func(w *world) {
		a := w.together(1)[0]
		a.disk.stopAt, a.disk.stopFor = afterListing, 20*time.Second
		w.runUntil(2*time.Second, a.stopped)
		w.start("z")
		w.run(25 * time.Second)
	})
}

// What is beyond the assumptions must be seen, or the checks are blind.
func TestBeyondTheAssumptions(t *testing.T) {
	for _, c := range []struct {
		name string
		find func(seed uint64) error
		min  int // of 60 runs
	}{
		{"clocks that drift by 10 %", func(seed uint64) error {
			return inBubble(t, options{seed: seed, drift: 100_000, think: 50 * ms}, func(w *world) {
				p := w.together(2)
				w.isolate(p[:1], p[1:], false, true, true, 12*time.Second)
				w.run(12 * time.Second)
			}).check.err
		}, 3},
		{"a machine that is paused with its clock", func(seed uint64) error {
			return inBubble(t, options{seed: seed, think: 50 * ms}, func(w *world) {
				p := w.together(2)
				p[0].pause(8 * time.Second)
				w.run(8 * time.Second)
			}).check.err
		}, 50},
	} {
		k := 0
		for seed := range uint64(60) {
			if c.find(seed) != nil {
				k++
			}
		}
		t.Logf("%s: %d of 60 runs violate", c.name, k)
		if k < c.min {
			t.Errorf("%s: only %d of 60 runs violate", c.name, k)
		}
	}
}
