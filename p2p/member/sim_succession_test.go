package member_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

var flagTakeovers = flag.Int("member.takeovers", long.Pure(60, long.Or(100, 300)), "how many random schedules with takeovers to run")

// takeover is a daemon that was replaced: what it held at that moment.
type takeover struct {
	former member.Node
	epoch  locks.Epoch
	heirs  []member.Node // who was told to go on with it
	goesOn member.Node   // who of them has granted something since
	passed string        // who has granted in a view with none of them
}

// passes notes whether who, that has granted by v, has done so without all of t.
func (c *checker) passes(t *takeover, v *member.View, who string) {
	if t.passed == "" && v.Epoch > t.epoch && !v.Has(t.former) && !slices.ContainsFunc(t.heirs, v.Has) {
		t.passed = who
	}
}

// replaceDaemon replaces the process of n, whose engine was frozen at this moment, by
// one that starts after a pause. It reports whether n was in a state for that.
func (w *world) replaceDaemon(n *node, pause int64) bool {
	if !n.granting() {
		return false
	}
	former, in := n.m.Self(), n.m.View()
	t := &takeover{former: former, epoch: n.epoch}
	w.check.takeovers = append(w.check.takeovers, t)
	n.kill()
	w.pending++
	w.after(pause*ms, func() {
		w.pending--
		if w.startOn(n.name, n.host, func(c *member.Config) { c.Succeeds, c.SucceedsIn = former, in }) != nil {
			n.host.ledger.l = &ledger{node: former, epoch: t.epoch, t: t}
		}
	})
	return true
}

// went checks S5 as n grants: a successor goes on with what its former self held
// only if nobody has granted anything by a view with neither of them, and it is the
// only one.
func (c *checker) went(n *node) {
	v := n.m.View()
	for _, t := range c.takeovers {
		c.passes(t, v, n.name)
	}
	if k := len(c.granted); k == 0 || c.granted[k-1] != v {
		c.granted = append(c.granted, v)
	}
	if t, self := n.took, n.m.Self(); t != nil {
		switch {
		case t.passed != "":
			c.failf("S5: %v goes on with what %v held, and %s has granted since", self, t.former, t.passed)
		case !t.goesOn.IsZero() && t.goesOn != self:
			c.failf("S5: both %v and %v go on with what %v held", t.goesOn, self, t.former)
		case t.goesOn.IsZero():
			t.goesOn = self
			c.succeedings++
		}
	}
}

// noticed notes whether n is to go on with what its former self held.
func (c *checker) noticed(n *node) {
	if n.out.Expelled != nil {
		n.took = nil
	}
	for _, x := range n.out.Notices {
		for _, t := range c.takeovers {
			if x.Kind == member.Succeeded && t.former == x.Node {
				t.heirs = append(t.heirs, n.m.Self())
				n.took = t
			}
		}
	}
}

// replaced are faults that replace a daemon, alone and with something else.
var replaced = []fault{
	{"takeover", func(w *world, n *node, d int64) int64 {
		w.replaceDaemon(n, w.between(0, 500)/ms)
		return 1000
	}},
	{"slow takeover", func(w *world, n *node, d int64) int64 {
		w.replaceDaemon(n, w.rng.Int64N(d)+1)
		return d
	}},
	{"takeover of several", func(w *world, n *node, d int64) int64 {
		for _, o := range w.running() {
			if o == n || w.chance(0.5) {
				w.replaceDaemon(o, w.between(0, 1000)/ms)
			}
		}
		return 2000
	}},
	{"takeover and a fault of the successor", func(w *world, n *node, d int64) int64 {
		pause := w.between(0, 300) / ms
		if !w.replaceDaemon(n, pause) {
			return 0
		}
		w.pending++
		w.after(pause*ms+w.between(0, 1000), func() {
			w.pending--
			s := w.target(n.name)
			switch {
			case s == nil:
			case w.chance(0.3):
				w.restart(s, w.between(0, 1000)/ms, w.chance(0.7))
			case w.chance(0.5):
				w.replaceDaemon(s, w.between(0, 300)/ms)
			default:
				s.stop(d)
			}
		})
		return pause + 2*d
	}},
	{"takeover by one that is stopped before its link", func(w *world, n *node, d int64) int64 {
		pause := w.between(0, 300) / ms
		if w.replaceDaemon(n, pause) {
			w.after((pause+1)*ms, func() {
				if s := w.target(n.name); s != nil {
					s.disk.stopAt, s.disk.stopFor = beforeLink, d
					w.after(2*d*ms, func() { s.disk.stopAt = noPoint })
				}
			})
		}
		return pause + 3*d
	}},
	{"takeover by two", func(w *world, n *node, d int64) int64 {
		w.replaceDaemon(n, w.between(0, 100)/ms)
		w.replaceDaemon(n, w.between(0, 100)/ms)
		return 1000
	}},
}

// withTakeovers is a random schedule in which daemons are replaced.
func withTakeovers(seed int64, bug string, tracing bool) outcome {
	o := randomOptions(seed)
	o.bug, o.takeovers = bug, true
	return schedule(o, tracing)
}

func TestTakeovers(t *testing.T) { successions(t, *flagTakeovers, "member.takeovers", withTakeovers) }

// successions runs so many schedules, as the flag says, and checks that daemons went on
// in the place of others.
func successions(t *testing.T, seeds int, flag string, run func(seed int64, bug string, tracing bool) outcome) {
	t.Helper()
	came := 0
	for seed := *flagFirst; seed < *flagFirst+int64(seeds); seed++ {
		r := run(seed, "", false)
		if r.w.check.err != nil {
			fail(t, r.w, fmt.Sprintf("go test ./p2p/member -run '^%s$' -member.first %d -%s 1 -v", t.Name(), seed, flag),
				func(tracing bool) *world { return run(seed, "", tracing).w })
			return
		}
		came += r.w.check.succeedings
	}
	t.Logf("%d daemons went on in the place of others", came)
	if came == 0 {
		t.Error("no daemon went on in the place of another")
	}
}

// While all is well a daemon is replaced without a loss, by one view, also several
// at once; one that comes when the others have gone on has lost all.
func TestTakeoverWhileAllIsWell(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int
		pause int64
		who   int // how many are replaced
		comes int // and how many of them go on
	}{
		{"one of three", 3, 100, 1, 1},
		{"two of three at once", 3, 100, 2, 2},
		{"all at once", 3, 100, 3, 3},
		{"alone", 1, 100, 1, 1},
		{"alone, after an hour", 1, 3_600_000, 1, 1},
		{"two of two, after an hour", 2, 3_600_000, 2, 2},
		{"too late", 3, 20_000, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20) {
				w := newWorld(options{seed: seed})
				for i := range c.nodes {
					w.start(string(rune('a' + i)))
				}
				if !w.runUntil(20_000, w.settled) {
					t.Fatalf("not settled: %s", w.describe())
				}
				views := w.check.views
				for i := range c.who {
					if !w.replaceDaemon(w.target(string(rune('a'+i))), c.pause) {
						t.Fatal("it could not be replaced")
					}
				}
				w.run(c.pause - 1)
				w.runUntil(20_000, func() bool { return w.pending == 0 && w.settled() })
				if w.check.err != nil || !w.settled() || w.check.succeedings != c.comes {
					t.Fatalf("seed %d: %v; %d went on, want %d\n%s", seed, w.check.err, w.check.succeedings, c.comes, w.describe())
				}
				if got := w.check.views - views; c.comes == c.who && got != c.who {
					t.Errorf("seed %d: %d views for %d takeovers", seed, got, c.who)
				}
				for i := range c.who {
					if s := w.target(string(rune('a' + i))); (s.expelled > 0) != (c.comes == 0) {
						t.Errorf("seed %d: %s was told %d times that all is lost", seed, s.name, s.expelled)
					}
				}
			}
		})
	}
}

// Of two processes that take the place of the same one, one of them on a clone of
// the machine, at most one goes on.
func TestTwoSuccessors(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(options{seed: seed, clones: true})
		for _, name := range []string{"a", "b", "c"} {
			w.start(name)
		}
		w.runUntil(20_000, w.settled)
		n := w.target("a")
		former := n.m.Self()
		w.replaceDaemon(n, w.between(0, 50)/ms)
		clone := *n.host
		clone.boot, clone.lock.Ino = "clone", 1000
		w.after(w.between(0, 50), func() {
			w.startOn("a", &clone, func(c *member.Config) { c.Succeeds = former })
		})
		w.run(5000)
		if w.check.err != nil || w.check.succeedings != 1 {
			t.Fatalf("seed %d: %v, %d went on\n%s", seed, w.check.err, w.check.succeedings, w.describe())
		}
	}
}
