package member_test

import (
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// measured is what TestTimes measures, with what users are told of it.
type measured struct {
	what        string
	fast        bool  // with --fast
	p50, atMost int64 // ms
	run         func(s *scene) int64
}

// untilTheyGoOn are times from a fault until those that remain can grant.
var untilTheyGoOn = []measured{
	{"killed, replaced after 0.2 s", false, 400, 500, func(s *scene) int64 {
		n := s.cluster(3)
		from := s.now
		n[1].kill()
		s.run(200)
		s.startOn("b", n[1].host, nil)
		s.until(2000, "all to grant", s.settled)
		return (s.now - from) / ms
	}},
	{"silent, 1 of 2", false, 5200, 5700, silent(2, 1)},
	{"silent, 1 of 3", false, 5200, 5700, silent(3, 1)},
	{"silent, 2 of 3", false, 7200, 7700, silent(3, 2)},
	{"silent, 8 of 9", false, 7900, 8300, silent(9, 8)},
	{"partition 1|1", false, 5200, 5700, partition(2, 1, false)},
	{"partition 2|1", false, 5200, 5700, partition(3, 1, false)},
	{"back after a partition", false, 700, 1100, partition(3, 1, true)},
	{"clean leave", false, 200, 300, func(s *scene) int64 {
		n := s.cluster(3)
		n[1].input(member.Leave{})
		return s.until(2000, "the rest to go on", func() bool { return n[1].end != nil && s.settled() })
	}},
	{"all dead, one restarts with its lock", false, 5600, 5750, func(s *scene) int64 {
		n := s.cluster(3)
		for _, x := range n {
			x.kill()
		}
		s.run(20_000)
		a := s.startOn("a", n[0].host, nil)
		return s.until(20_000, "it to grant", allGrant(a))
	}},
	{"all dead, a stranger starts", false, 8000, 8250, func(s *scene) int64 {
		for _, x := range s.cluster(3) {
			x.kill()
		}
		s.run(20_000)
		z := s.start("z")
		return s.until(20_000, "it to grant", allGrant(z))
	}},
	{"--fast: silent, 1 of 3", true, 2150, 2400, silent(3, 1)},
	{"--fast: silent, 2 of 3", true, 2700, 2950, silent(3, 2)},
	{"--fast: silent, 8 of 9", true, 3300, 3700, silent(9, 8)},
}

// pausesAndJoins are pauses of those that have no fault themselves, and how long
// it takes to be in, or to know that one can't be.
var pausesAndJoins = []measured{
	{"pause of the others, a pair of 5 cut", false, 100, 200, func(s *scene) int64 {
		n := s.cluster(5)
		s.isolate(n[:1], n[1:2], false, true, true, 15_000)
		return s.pause(14_000, n[2:]...)
	}},
	{"error of an isolated newcomer", false, 2500, 3000, func(s *scene) int64 {
		s.cluster(3)
		z := s.isolated("z", 60_000, nil)
		return s.until(20_000, "an error", func() bool { return z.end != nil })
	}},
	{"pause when the storage hangs for 20 s", false, 16_000, 16_300, func(s *scene) int64 {
		n := s.cluster(3)
		for _, x := range n {
			x.hang(20_000)
		}
		return s.pause(22_000, n...)
	}},
	{"pause for a crash, replaced", false, 30, 90, func(s *scene) int64 {
		n := s.cluster(3)
		n[2].kill()
		s.run(200)
		s.startOn("c", n[2].host, nil)
		return s.pause(1000, n[:2]...)
	}},
	{"join", false, 350, 650, func(s *scene) int64 {
		s.cluster(3)
		s.start("z")
		return s.until(5000, "it to be in", s.settled)
	}},
	{"join, fast network", false, 350, 500, func(s *scene) int64 {
		s.opt.lan = true
		s.cluster(3)
		s.start("z")
		return s.until(5000, "it to be in", s.settled)
	}},
	{"pause for a crash, fast network", false, 20, 60, func(s *scene) int64 {
		s.opt.lan = true
		n := s.cluster(3)
		n[2].kill()
		s.run(200)
		s.startOn("c", n[2].host, nil)
		return s.pause(1000, n[:2]...)
	}},
	{"3 start together", false, 800, 1400, startTogether(3, 3)},
	{"9 start together", false, 2200, 3200, startTogether(9, 8)},
}

// TestTimes measures, from a fault until all that remain can grant, which is
// when the locks of the dead are free. The bounds are what users are told; the
// medians are in the log. Virtual time: that of fsync and of the Go scheduler
// comes on top.
func TestTimes(t *testing.T) {
	long.NoRace(t)
	seeds := long.Or(10, 30)
	if testing.Short() {
		seeds = 10
	}
	for _, row := range append(slices.Clone(untilTheyGoOn), pausesAndJoins...) {
		var times []int64
		o := options{}
		if row.fast {
			o.params = member.Fast()
		}
		tell(t, seeds, o, func(s *scene) { times = append(times, row.run(s)) })
		if t.Failed() {
			t.Fatalf("%s failed", row.what)
		}
		p50, _, top := percentiles(times)
		t.Logf("%-40s p50 %5d ms, max %5d ms", row.what, p50, top)
		if p50 > row.p50 && seeds >= 30 || top > row.atMost {
			t.Errorf("%s: p50 %d ms, max %d ms; told are %d and %d", row.what, p50, top, row.p50, row.atMost)
		}
	}
}

// silent is dead of n nodes that stop, until the rest go on.
func silent(n, dead int) func(s *scene) int64 {
	return func(s *scene) int64 {
		nodes := s.cluster(n)
		s.run(s.rng.Int64N(1000))
		s.rng.Shuffle(n, func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		for _, x := range nodes[:dead] {
			x.stop(60_000)
		}
		views := s.check.views
		took := s.until(20_000, "the rest to go on", func() bool {
			return s.newViews(views) > 0 && allGrant(nodes[dead:]...)() && len(s.check.top.Members) == n-dead
		})
		s.expect(s.newViews(views) == 1, "1 view, not %d", s.newViews(views))
		return took
	}
}

// partition is lone of n nodes that are cut off, until a side goes on; or, with
// back, from its end until the other is back.
func partition(n, lone int, back bool) func(s *scene) int64 {
	return func(s *scene) int64 {
		nodes := s.cluster(n)
		s.run(s.rng.Int64N(1000))
		views := s.check.views
		s.isolate(nodes[:lone], nodes[lone:], false, true, true, 15_000)
		from := s.now
		took := s.until(8000, "a side to go on", func() bool {
			if s.newViews(views) == 0 {
				return false
			}
			for _, x := range nodes {
				if s.check.top.HasPeer(x.name) && !x.granting() {
					return false
				}
			}
			return true
		})
		if !back {
			return took
		}
		s.runUntil(15_000, func() bool { return s.now >= from+15*second })
		return s.until(5000, "the other to be back", s.settled)
	}
}

// together is n nodes that start, until they are one view.
func startTogether(n, views int) func(s *scene) int64 {
	return func(s *scene) int64 {
		for i := range n {
			s.start(string(rune('a' + i)))
			s.run(s.rng.Int64N(60))
		}
		took := s.until(10_000, "one view", s.settled)
		s.expect(s.check.views <= views, "at most %d views, not %d", views, s.check.views)
		return took
	}
}
