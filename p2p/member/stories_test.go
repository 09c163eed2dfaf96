package member_test

import (
	"fmt"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Each story is something that happens to a cluster, with a bound on how long it
// may take.

func TestStory01ThreeStartTogether(t *testing.T) {
	tell(t, 50, options{}, func(s *scene) {
		for _, name := range []string{"a", "b", "c"} {
			s.start(name)
			s.run(s.rng.Int64N(30))
		}
		s.until(2000, "one view of three", s.settled)
		s.expect(s.check.views <= 3, "at most 3 views, not %d", s.check.views)
	})
}

func TestStory02FounderStoppedBeforeLinkingViewOne(t *testing.T) {
	p := member.Default()
	p.Keep = 2
	tell(t, 30, options{params: p}, func(s *scene) {
		a := s.start("a")
		a.disk.stopAt, a.disk.stopFor = beforeLink, 20_000
		s.run(100)
		s.expect(a.stopped(), "a to be stopped before its link")
		b := s.start("b")
		s.start("c")
		s.until(5000, "b and c in a view", func() bool { return s.check.top != nil && len(s.check.top.Members) == 2 && b.granting() })
		for i := range 5 {
			s.setPolicy(b, fmt.Sprint(i))
			s.run(1000)
		}
		s.expect(s.store.View(1) == nil, "view 1 to be pruned")
		s.until(20_000, "a's link of the pruned name", func() bool { return s.store.Relinked > 0 })
		s.until(3000, "a in the view of the others", s.settled)
	})
}

func TestStory03StopOfFourSeconds(t *testing.T) {
	tell(t, 30, options{}, func(s *scene) {
		n := s.cluster(3)
		views := s.check.views
		n[s.opt.seed%3].stop(4000)
		s.run(4000)
		s.until(200, "all to grant after it", s.settled)
		s.run(5000)
		s.expect(s.newViews(views) == 0, "no new view")
	})
}

func TestStory04StopOfTwelveSeconds(t *testing.T) {
	tell(t, 30, options{}, func(s *scene) {
		n := s.cluster(3)
		k := int(s.opt.seed % 3)
		victim, x, y := n[k], n[(k+1)%3], n[(k+2)%3]
		views := s.check.views
		victim.stop(12_000)
		s.run(4500)
		s.until(1100, "the others to go on without it", func() bool { return s.newViews(views) == 1 && x.granting() && y.granting() })
		s.expect(!s.check.top.HasPeer(victim.name), "it to be dropped")
		s.until(12_000, "its waking", func() bool { return !victim.stopped() })
		s.expect(!victim.granting(), "no grant when it wakes")
		s.until(1000, "it to be back", s.settled)
		s.expect(victim.expelled == 1, "it to be told that it was expelled")
		s.expect(s.newViews(views) == 2, "2 views, not %d", s.newViews(views))
	})
}

func TestStory05ProposerStoppedBeforeItsLink(t *testing.T) {
	tell(t, 30, options{}, func(s *scene) {
		n := s.cluster(4)
		for _, x := range n[:3] {
			x.disk.stopAt, x.disk.stopFor = beforeLink, 20_000
		}
		n[3].kill()
		var first *node
		s.until(6000, "a member to be stopped as it drops d", func() bool {
			for _, x := range n[:3] {
				if x.stopped() {
					first = x
				}
			}
			return first != nil
		})
		for _, x := range n[:3] {
			x.disk.stopAt = noPoint
		}
		rest := s.others(first)
		s.until(8000, "the others to go on alone", func() bool { return allGrant(rest...)() && len(s.check.top.Members) == 2 })
		s.until(20_000, "its waking", func() bool { return !first.stopped() })
		s.until(1500, "it to be back", s.settled)
	})
}

func TestStory06ProposerStoppedAfterItsLink(t *testing.T) {
	tell(t, 30, options{}, func(s *scene) {
		n := s.cluster(3)
		c := n[2]
		views := s.check.views
		for _, x := range n[:2] {
			x.disk.stopAt, x.disk.stopFor = afterLink, 20_000
		}
		s.isolate([]*node{c}, n[:2], false, true, true, 40_000)
		s.until(6500, "the drop of c", func() bool { return s.newViews(views) == 1 })
		_, _, live := c.live()
		s.expect(!live, "c not to be live at the link that drops it")
		a, b := n[0], n[1]
		if b.stopped() {
			a, b = b, a
		}
		s.expect(a.stopped(), "the maker to be stopped")
		b.disk.stopAt = noPoint
		s.until(7500, "the other to go on without it", func() bool { return b.granting() && len(s.check.top.Members) == 1 })
		s.run(30_000)
		s.until(2000, "all to be back", s.settled)
	})
}

func TestStory07LinkCarriedOutLate(t *testing.T) {
	tell(t, 100, options{}, func(s *scene) {
		n := s.cluster(2)
		a, b := n[0], n[1]
		views := s.check.views
		a.disk.errs, a.disk.late, a.disk.lateBy = 1, 1, 8000
		a.disk.done = 0.3
		b.hang(60_000) // only a can link
		s.cutBoth(a, b, false)
		s.until(6000, "a's proposal", func() bool { return a.m.Status().Proposal != nil })
		s.run(s.rng.Int64N(300))
		s.healBoth(a, b)
		s.run(3000)
		a.disk.errs = 0
		s.until(9000, "the late link, or another try", func() bool { return s.newViews(views) == 1 })
		s.until(3000, "a to go on", allGrant(a))
		s.expect(!s.check.top.HasPeer("b") || s.newViews(views) > 1, "b to stay refused until it is dropped")
		b.hang(0)
	})
}

func TestStory08LeaveWithAProposalOpen(t *testing.T) {
	tell(t, 100, options{}, func(s *scene) {
		n := s.cluster(3)
		a, b, c := n[0], n[1], n[2]
		// c is cut off from a only: a proposes to drop it. The link works,
		// but its reply is late.
		s.cutBoth(a, c, false)
		c.hang(60_000) // c does not learn it by itself
		b.hang(60_000)
		s.until(7000, "a's proposal", func() bool { return a.m.Status().Proposal != nil })
		a.disk.slow, a.disk.slowMin = 3000, 2000
		s.run(s.rng.Int64N(20))
		s.healBoth(a, c)
		s.run(s.rng.Int64N(400))
		a.input(member.Leave{})
		s.run(1500)
		s.expect(a.end == nil, "a to wait for the outcome of its proposal")
		a.disk.slow, a.disk.slowMin = 0, 0
		b.hang(0)
		c.hang(0)
		s.until(5000, "a to have left", func() bool { return a.end != nil && a.end.Code == member.EndLeft })
		s.until(20_000, "the others to go on", s.settled)
	})
}

func TestStory09PartitionOneOne(t *testing.T) {
	tell(t, 50, options{}, func(s *scene) {
		n := s.cluster(2)
		views := s.check.views
		s.isolate(n[:1], n[1:], s.opt.seed%2 == 0, true, true, 15_000)
		from := s.now
		s.until(6500, "one side to go on", func() bool { return s.newViews(views) == 1 && (n[0].granting() != n[1].granting()) })
		s.expect(s.now-from >= 4400*ms, "the dropped one's tenure to be over first")
		s.runUntil(15_000, func() bool { return s.now >= from+15*second })
		s.until(1100, "the other to be back", s.settled)
		s.expect(s.newViews(views) == 2, "2 views, not %d", s.newViews(views))
	})
}

func TestStory10PartitionTwoOne(t *testing.T) {
	tell(t, 60, options{}, func(s *scene) {
		n := s.cluster(3)
		k := int(s.opt.seed % 3)
		lone, x, y := n[k], n[(k+1)%3], n[(k+2)%3]
		views := s.check.views
		s.isolate([]*node{lone}, []*node{x, y}, s.opt.seed%2 == 0, true, true, 15_000)
		s.until(5600, "the pair to go on", func() bool { return s.newViews(views) == 1 && allGrant(x, y)() })
		s.expect(!s.check.top.HasPeer(lone.name), "the pair to win")
		s.run(15_000)
		s.until(1100, "the other to be back", s.settled)
		s.expect(s.newViews(views) == 2, "2 views, not %d", s.newViews(views))
	})
}

func TestStory11OnePairOfFive(t *testing.T) {
	long.NoRace(t)
	for _, oneWay := range []bool{false, true} {
		tell(t, 30, options{}, func(s *scene) {
			n := s.cluster(5)
			i := int(s.opt.seed) % 5
			a, b := n[i], n[(i+1+int(s.opt.seed/5)%4)%5]
			views := s.check.views
			s.isolate([]*node{a}, []*node{b}, false, true, !oneWay, 60_000)
			var rest []*node
			for _, x := range n {
				if x != a && x != b {
					rest = append(rest, x)
				}
			}
			longest := s.pause(15_000, rest...)
			s.expect(longest < 200, "the others to pause less than 0.2 s, not %d ms", longest)
			four := 0
			for _, x := range n {
				if x.granting() {
					four++
				}
			}
			s.expect(four == 4, "four to go on, not %d", four)
			s.run(44_000)
			s.expect(s.newViews(views) == 1, "1 view while the pair is cut, not %d", s.newViews(views))
			s.until(3000, "the fifth to be back", s.settled)
			s.expect(s.newViews(views) == 2, "2 views, not %d", s.newViews(views))
		})
	}
}

func TestStory12HalfDead(t *testing.T) {
	for size := 2; size <= 4; size++ {
		tell(t, 20, options{}, func(s *scene) {
			n := s.cluster(size)
			deaf := n[int(s.opt.seed)%size]
			s.isolate([]*node{deaf}, s.others(deaf), false, true, false, 60_000)
			took := s.until(8500, "a side to go on", func() bool {
				for _, x := range n {
					if !x.granting() && s.check.top.HasPeer(x.name) {
						return false
					}
				}
				return len(s.check.top.Members) < size
			})
			s.expect(took > 4000, "a tenure to pass before")
			s.run(52_000)
			s.until(12_000, "all to be back", s.settled)
		})
	}
}

func TestStory13HeartbeatsQueued(t *testing.T) {
	tell(t, 30, options{}, func(s *scene) {
		n := s.cluster(3)
		k := int(s.opt.seed % 3)
		s.isolate(n[k:k+1], s.others(n[k]), true, true, true, 20_000)
		s.run(19_000)
		var pair []*node
		for _, x := range n {
			if x.granting() {
				pair = append(pair, x)
			}
		}
		s.expect(len(pair) == 2, "the pair to grant")
		longest := s.pause(900, pair...)
		s.expect(longest == 0, "promises among the live not to suffer")
		s.until(3000, "all to be back", s.settled)
	})
}

func TestStory14SoleMemberStoppedAfterListing(t *testing.T) {
	tell(t, 50, options{}, func(s *scene) {
		a := s.cluster(1)[0]
		a.disk.stopAt, a.disk.stopFor = afterListing, 20_000
		s.until(2000, "a to be stopped", a.stopped)
		b := s.start("b")
		s.until(9000, "the stranger to take over", allGrant(b))
		s.until(20_000, "a's waking", func() bool { return !a.stopped() })
		s.until(2000, "both to be together", s.settled)
		s.expect(a.expelled == 1, "a to be told that it was expelled")
	})
}
