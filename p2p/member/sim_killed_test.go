package member_test

import (
	"flag"
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

var flagKills = flag.Int("member.kills", long.Pure(60, long.Or(100, 300)), "how many random schedules with daemons that are killed and have successors to run")

// ledgerBox is where the ledger of a state directory is, whatever process uses it.
type ledgerBox struct{ l *ledger }

// ledger is what outlives a daemon that is killed, as far as it is not the engine's.
type ledger struct {
	node    member.Node // whom it names
	epoch   locks.Epoch
	claimed []member.Node // see member.LinkOp.Claim
	t       *takeover     // who takes the place of node; nil: nobody has tried
}

// names: the engine of n is at v, and its ledger says so from now on.
func (n *node) names(v *member.View) {
	self := n.m.Self()
	if n.m.State() == member.StateOut || !v.Has(self) {
		return // its tenure is over, and that is to be obeyed yet
	}
	if n.w.opt.bug == "ledgerOfBefore" && n.took != nil {
		return // the one that was read stays the one that counts
	}
	n.host.ledger.l = &ledger{node: self, epoch: v.Epoch}
}

// claims is member.LinkOp.Claim.
func (n *node) claims(op member.LinkOp) {
	if l := n.host.ledger.l; l != nil && len(op.Claim) > 0 && n.w.opt.bug != "claimIsNotKept" {
		l.claimed = slices.Clone(op.Claim)
	}
}

// takeoverOf is that of the ledger l, as its process ends.
func (w *world) takeoverOf(l *ledger) *takeover {
	if l.t == nil {
		l.t = &takeover{former: l.node, epoch: l.epoch}
		w.check.takeovers = append(w.check.takeovers, l.t)
		for _, v := range w.check.granted {
			w.check.passes(l.t, v, "somebody")
		}
	}
	return l.t
}

// killDaemon kills n, and starts a process after a pause that goes on with its
// ledger; at then, if not nil, is called with it. It reports whether there is one.
func (w *world) killDaemon(n *node, pause int64, then func(s *node)) bool {
	box := n.host.ledger
	if !n.alive || box.l == nil {
		return false
	}
	w.takeoverOf(box.l)
	n.kill()
	w.pending++
	w.after(pause*ms, func() {
		w.pending--
		s := w.startOn(n.name, n.host, w.heirOf(box.l))
		if s != nil && then != nil {
			then(s)
		}
	})
	return true
}

// heirOf has a process go on with l; nil: there is nothing to go on with.
func (w *world) heirOf(l *ledger) func(*member.Config) {
	if l == nil {
		return nil
	}
	return func(c *member.Config) {
		c.Heir = &member.Heir{Of: l.node, Epoch: l.epoch, Claimed: slices.Clone(l.claimed)}
		if w.chance(0.3) { // a state directory is written a moment later
			c.Former = c.Former[:max(len(c.Former)-2, 0)]
		}
	}
}

// killAtLink kills s as it tries its first link: the server never gets it, carries it
// out at once, or later, when the next process may have begun. That one goes on with
// the ledger; then is called with it.
func (w *world) killAtLink(s *node, pause int64, then func(*node)) {
	s.disk.atLink = func(op member.LinkOp) {
		switch {
		case w.chance(0.5):
			_ = w.do(op)
		case w.chance(0.5):
			w.after(w.between(0, 2*pause+100), func() { _ = w.do(op) })
		}
		w.killDaemon(s, pause, then)
	}
}

// killed are faults that kill a daemon which has a successor.
var killed = []fault{
	{"kill", func(w *world, n *node, d int64) int64 {
		w.killDaemon(n, w.between(0, 500)/ms, nil)
		return 1000
	}},
	{"kill with a slow successor", func(w *world, n *node, d int64) int64 {
		w.killDaemon(n, w.rng.Int64N(d)+1, nil)
		return d
	}},
	{"kill of several", func(w *world, n *node, d int64) int64 {
		for _, o := range w.running() {
			if o == n || w.chance(0.5) {
				w.killDaemon(o, w.between(0, 1000)/ms, nil)
			}
		}
		return 2000
	}},
	{"kill, and again at the link", func(w *world, n *node, d int64) int64 {
		pause := w.between(0, 500) / ms
		k := 1 + w.rng.IntN(3)
		var next func(*node)
		next = func(s *node) {
			if k--; k >= 0 {
				w.killAtLink(s, pause, next)
			}
		}
		w.killDaemon(n, pause, next)
		return 5*pause + 1000
	}},
	{"kill, and again soon", func(w *world, n *node, d int64) int64 {
		k := 1 + w.rng.IntN(4)
		var next func(*node)
		next = func(s *node) {
			if k--; k >= 0 {
				w.after(w.between(0, 200), func() { w.killDaemon(s, w.between(0, 200)/ms, next) })
			}
		}
		w.killDaemon(n, w.between(0, 200)/ms, next)
		return 2000
	}},
	{"kill after a takeover", func(w *world, n *node, d int64) int64 {
		pause := w.between(0, 100) / ms
		if w.replaceDaemon(n, pause) {
			w.after(pause*ms+w.between(0, 100), func() {
				if s := w.target(n.name); s != nil {
					w.killDaemon(s, w.between(0, 200)/ms, nil)
				}
			})
		}
		return 1000
	}},
	{"kill, and a successor that is stopped at its link", func(w *world, n *node, d int64) int64 {
		w.killDaemon(n, w.between(0, 300)/ms, func(s *node) {
			s.disk.stopAt, s.disk.stopFor = beforeLink, d
			if w.chance(0.5) {
				s.disk.stopAt = afterLink
			}
			w.after(2*d*ms, func() { s.disk.stopAt = noPoint })
		})
		return 3 * d
	}},
	{"stop, and a kill", func(w *world, n *node, d int64) int64 {
		n.stop(d)
		w.pending++
		w.after(w.between(0, d), func() {
			w.pending--
			w.killDaemon(n, w.between(0, 300)/ms, nil)
		})
		return d + 1000
	}},
}

// withKills is a random schedule in which daemons are killed and succeeded.
func withKills(seed int64, bug string, tracing bool) outcome {
	o := randomOptions(seed)
	o.bug, o.kills, o.takeovers = bug, true, seed%3 == 0
	return schedule(o, tracing)
}

func TestKills(t *testing.T) { successions(t, *flagKills, "member.kills", withKills) }

// While all is well a kill costs one view, and no lock.
func TestKillWhileAllIsWell(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int
		pause int64
		comes int
	}{
		{"one of three", 3, 100, 1},
		{"alone", 1, 100, 1},
		{"alone, after an hour", 1, 3_600_000, 1},
		{"too late", 3, 20_000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20) {
				w := newWorld(options{seed: seed})
				a := w.together(c.nodes)[0]
				views := w.check.views
				if !w.killDaemon(a, c.pause, nil) {
					t.Fatal("it has no ledger")
				}
				w.run(c.pause - 1)
				w.runUntil(20_000, func() bool { return w.pending == 0 && w.settled() })
				if w.check.err != nil || !w.settled() || w.check.succeedings != c.comes {
					t.Fatalf("seed %d: %v; %d went on, want %d\n%s", seed, w.check.err, w.check.succeedings, c.comes, w.describe())
				}
				if got := w.check.views - views; c.comes == 1 && got != 1 {
					t.Errorf("seed %d: %d views for one kill", seed, got)
				}
				if s := w.target("a"); (s.expelled > 0) != (c.comes == 0) {
					t.Errorf("seed %d: %d times it was told that all is lost", seed, s.expelled)
				}
			}
		})
	}
}

// killedAtLink: successors are killed one after the other at their links, and the
// last one goes on.
func killedAtLink(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug}, func(w *world) {
		a := w.together(1 + int(seed%3))[0]
		k := 1 + int(seed%4)
		var next func(*node)
		next = func(s *node) {
			if k--; k >= 0 {
				w.killAtLink(s, 50, next)
			}
		}
		w.killDaemon(a, 50, next)
		w.runUntil(20_000, func() bool { return w.pending == 0 && k < 0 && w.settled() })
		if w.check.err == nil && (!w.settled() || w.check.succeedings != 1 || w.target("a").expelled > 0) {
			w.check.failf("%d went on, and not the last one", w.check.succeedings)
		}
	})
}

func TestKillsBetweenLinkAndBegin(t *testing.T) {
	for seed := range uint64(60) {
		if err := killedAtLink(seed, ""); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// copiedLedger: a machine was copied with its memory while its daemon ran, and the copy
// of the daemon killed. Its successor does not take the place of the one that runs.
func copiedLedger(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug, clones: true}, func(w *world) {
		a := w.together(2 + int(seed%2))[0]
		h := a.host.clone("-copy") // with the same boot ID
		if seed%4 < 2 {
			h.boot, h.addr = "copy", "" // of the state directory, and of a ledger
		}
		h.ledger = &ledgerBox{a.host.ledger.l}
		w.startOn("a", h, w.heirOf(h.ledger.l))
		w.run(15_000)
	})
}

func TestCopiedLedger(t *testing.T) {
	for seed := range uint64(30) {
		if err := copiedLedger(seed, ""); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// lateSuccessor comes when the others have gone on without the one before it.
func lateSuccessor(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug}, func(w *world) {
		a := w.together(2 + int(seed%2))[0]
		w.killDaemon(a, 8000+w.rng.Int64N(4000), nil)
		w.run(20_000)
	})
}

// killedAfterBegin: a daemon goes on with a ledger, and is killed when it has granted.
// What it has given up since is not in the ledger of the one before it.
func killedAfterBegin(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug}, func(w *world) {
		a := w.together(1 + int(seed%3))[0]
		w.killDaemon(a, 50, nil)
		w.runUntil(10_000, func() bool { return w.pending == 0 && w.settled() })
		if s := w.target("a"); s != nil {
			w.killDaemon(s, 50, nil)
		}
		w.runUntil(10_000, func() bool { return w.pending == 0 && w.settled() })
	})
}

// killedWhenLost: it is too late for a successor, which joins as anybody does, and is
// killed before its ledger names it. Those after it have no better claim.
func killedWhenLost(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug}, func(w *world) {
		a := w.together(2 + int(seed%2))[0]
		w.killDaemon(a, 8000, nil)
		w.runUntil(30_000, func() bool {
			s := w.target("a")
			return s != nil && w.check.top.Has(s.m.Self())
		})
		w.killDaemon(w.target("a"), 50, func(s *node) {
			s.disk.atLink = func(op member.LinkOp) {
				_ = w.do(op)
				w.killDaemon(s, 50, nil)
			}
		})
		w.run(20_000)
		if w.check.err == nil && w.check.succeedings > 0 {
			w.check.failf("%d went on with what was lost", w.check.succeedings)
		}
	})
}
