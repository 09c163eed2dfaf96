package member_test

import (
	"fmt"
	"testing"

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

func TestStory15IsolatedNewcomer(t *testing.T) {
	tell(t, 50, options{}, func(s *scene) {
		n := s.cluster(1 + int(s.opt.seed%3))
		views := s.check.views
		z := s.isolated("z", 100_000, nil)
		s.until(3000, "an error", func() bool { return z.end != nil })
		if z.end != nil {
			s.expect(z.end.Code == member.EndUnreachable && len(z.end.Answers) > 0, "the members' answers in the error, not %v %s", z.end.Code, z.end.Text)
		}
		s.expect(s.newViews(views) == 0 && allGrant(n...)(), "the members not to be disturbed")
	})
}

// The answer comes after the newcomer's patience: it adds itself, and goes
// again when it sees the answer, or is dropped.
func TestStory16AnswerTooLate(t *testing.T) {
	slow := func(n *node) { n.disk.slow, n.disk.slowMin = 4000, 3000 }
	t.Run("storage slow for all", func(t *testing.T) {
		tell(t, 60, options{}, func(s *scene) {
			n := s.cluster(1 + int(s.opt.seed%3))
			views := s.check.views
			for _, x := range n {
				slow(x)
			}
			s.run(4000)
			z := s.isolated("z", 100_000, nil)
			slow(z)
			s.until(25_000, "z to add itself, or to be told", func() bool { return z.end != nil || s.newViews(views) == 1 && s.check.top.HasPeer("z") })
			s.until(25_000, "it to be out", func() bool { return z.end != nil && !s.check.top.HasPeer("z") })
			for _, x := range n {
				x.disk.slow, x.disk.slowMin = 0, 0
			}
			s.until(10_000, "the members to go on", allGrant(n...))
			for _, x := range n {
				s.expect(x.expelled == 0, "%s to stay a member", x.name)
			}
		})
	})
	// Then nobody can tell the members from dead ones. One side goes on.
	t.Run("storage slow for the members", func(t *testing.T) {
		tell(t, 60, options{}, func(s *scene) {
			n := s.cluster(1 + int(s.opt.seed%3))
			views := s.check.views
			for _, x := range n {
				slow(x)
			}
			s.run(4000)
			z := s.isolated("z", 100_000, nil)
			s.until(12_000, "z to add itself, or to be told", func() bool { return z.end != nil || s.newViews(views) == 1 })
			s.until(15_000, "z to be out, or alone", func() bool {
				return z.end != nil && !s.check.top.HasPeer("z") || z.granting() && len(s.check.top.Members) == 1
			})
			for _, x := range n {
				x.disk.slow, x.disk.slowMin = 0, 0
			}
			s.until(10_000, "one side to go on", func() bool { return allGrant(n...)() || z.granting() })
		})
	})
}

func TestStory17AnswersAndDies(t *testing.T) {
	tell(t, 30, options{}, func(s *scene) {
		a := s.cluster(1)[0]
		z := s.isolated("z", 100_000, nil)
		s.until(3000, "an error", func() bool { return z.end != nil })
		a.kill()
		z = s.start("z")
		// What is left of the first try may not be taken for an answer.
		s.until(9000, "z to take over", allGrant(z))
	})
}

func TestStory18AllDie(t *testing.T) {
	t.Run("one restarts with its lock", func(t *testing.T) {
		tell(t, 30, options{}, func(s *scene) {
			n := s.cluster(3)
			for _, x := range n {
				x.kill()
			}
			s.run(30_000)
			a := s.startOn("a", n[0].host, nil)
			s.until(5250+500, "it to grant", allGrant(a))
		})
	})
	t.Run("a stranger starts", func(t *testing.T) {
		tell(t, 30, options{}, func(s *scene) {
			n := s.cluster(3)
			for _, x := range n {
				x.kill()
			}
			s.run(30_000)
			z := s.start("z")
			s.until(5250+3000, "it to grant", allGrant(z))
		})
	})
	t.Run("a sole member restarts", func(t *testing.T) {
		tell(t, 30, options{}, func(s *scene) {
			a := s.cluster(1)[0]
			a.kill()
			s.run(200)
			b := s.startOn("a", a.host, nil)
			s.until(200, "it to grant", allGrant(b))
		})
	})
}

func TestStory19CopiedStateDirectory(t *testing.T) {
	tell(t, 30, options{clones: true}, func(s *scene) {
		n := s.cluster(3)
		views := s.check.views
		copied := *n[0].host // the saved state; another host, so another boot and lock
		copied.boot, copied.lock.Ino = "elsewhere", 4711
		clone := s.startOn("a", &copied, nil)
		s.run(60_000)
		s.expect(s.newViews(views) < 10, "no storm of views")
		a, c := n[0].granting(), clone.granting()
		s.expect(!a || !c, "not both to be live")
		s.expect(n[1].granting() == n[2].granting(), "the others to agree")
	})
}

func TestStory20StorageHangs(t *testing.T) {
	t.Run("for all", func(t *testing.T) {
		tell(t, 30, options{}, func(s *scene) {
			n := s.cluster(3)
			views := s.check.views
			for _, x := range n {
				x.hang(20_000)
			}
			s.run(6200)
			s.expect(s.onlyGranting(), "all to be suspended after Ls")
			s.run(13_700)
			s.until(250, "all to grant again", s.settled)
			s.expect(s.newViews(views) == 0, "no view")
		})
	})
	t.Run("for one", func(t *testing.T) {
		tell(t, 30, options{}, func(s *scene) {
			n := s.cluster(3)
			views := s.check.views
			n[0].hang(60_000)
			longest := s.pause(59_000, n[1], n[2])
			s.expect(longest == 0, "the others not to pause, not %d ms", longest)
			s.expect(!n[0].granting() && s.check.top.HasPeer("a"), "it to be suspended, and its locks to stay")
			s.until(1500, "all to grant again", s.settled)
			s.expect(s.newViews(views) == 0, "no view")
		})
	})
}

func TestStory21NewcomerDies(t *testing.T) {
	tell(t, 60, options{}, func(s *scene) {
		n := s.cluster(2)
		z := s.start("z")
		when := int64(s.opt.seed) % 3
		views := s.check.views
		switch when {
		case 0: // welcomed, not yet added
			s.until(1000, "z to be welcomed", func() bool { return n[0].m.Status().Joiners != nil && n[0].m.Status().Joiners[0].Ready })
		case 1: // added, not installed
			s.until(2000, "z to be added", func() bool { return s.newViews(views) == 1 })
		case 2: // installed, no SYNC yet
			s.until(2000, "z to install", func() bool { return z.m.Epoch() == s.check.top.Epoch && s.newViews(views) == 1 })
		}
		z.kill()
		s.run(250)
		longest := s.pause(8000, n...)
		s.expect(longest <= 5250+1000, "a pause of at most L + delta + 1 s, not %d ms", longest)
		s.expect(s.settled(), "the others to go on")
	})
}

func TestStory22MemberDiesDuringSync(t *testing.T) {
	tell(t, 60, options{}, func(s *scene) {
		n := s.cluster(3)
		s.setPolicy(n[0], "another")
		e := s.check.top.Epoch
		s.until(1000, "a new view", func() bool { return n[2].m.Epoch() > e })
		n[2].kill()
		s.until(7000, "the others to go on in a further view", func() bool { return s.settled() && s.check.top.Epoch >= e+2 })
	})
}

func TestStory23CrashLoop(t *testing.T) {
	tell(t, 20, options{}, func(s *scene) {
		n := s.cluster(3)
		views, backoff := s.check.views, int64(0)
		c := n[2]
		for i := range 10 {
			dead := c.m.Self()
			c.kill()
			s.run(200)
			c = s.startOn("c", c.host, nil)
			longest := s.pause(300, n[0], n[1])
			s.until(100, "the dead one to be dropped, whatever the back-off", func() bool { return !s.check.top.Has(dead) })
			s.expect(longest < 100, "crash %d: a pause under 0.1 s, not %d ms", i, longest)
			s.until(25_000, "c to be back", s.settled)
			s.expect(c.host.saved.Backoff >= min(2*backoff, member.Default().BackoffMax), "crash %d: the back-off to grow from %d, not %d", i, backoff, c.host.saved.Backoff)
			backoff = c.host.saved.Backoff
		}
		s.expect(backoff == member.Default().BackoffMax, "the back-off to be at its largest, not %d", backoff)
		s.expect(s.newViews(views) <= 20, "at most 2 views for a crash, not %d in all", s.newViews(views))
		s.run(31_000)
		s.expect(c.host.saved.Backoff == 0, "the back-off to be forgotten after 30 s of service")
	})
}

func TestStory24ClockJump(t *testing.T) {
	tell(t, 60, options{drift: 1000}, func(s *scene) {
		n := s.cluster(2 + int(s.opt.seed%2))
		a := n[0]
		views := s.check.views
		s.isolate([]*node{a}, s.others(a), false, true, true, 15_000)
		from := s.now
		s.run(s.rng.Int64N(5000))
		a.host.offset += 12_000
		s.until(300, "it to lose its tenure", func() bool { return !a.granting() })
		s.until(15_000, "a view", func() bool { return s.newViews(views) > 0 })
		s.expect(s.now-from >= 4600*ms, "nobody to be dropped before L + delta of waking time, not after %d ms", (s.now-from)/ms)
		s.run(15_000)
		s.until(12_000, "all to be back", s.settled)
	})
}

func TestStory25OldListings(t *testing.T) {
	tell(t, 40, options{cache: 20_000, stale: -1}, func(s *scene) {
		s.cluster(2)
		z := s.isolated("z", 30_000, nil)
		s.run(30_000)
		s.until(90_000, "an error, or to join", func() bool { return z.end != nil || s.settled() })
		if z.end != nil {
			s.expect(z.end.Code == member.EndUnreachable, "it to be unreachable, not %v", z.end.Code)
		}
	})
}

// What is beyond the assumptions must be seen, or the checks are blind.
func TestBeyondTheAssumptions(t *testing.T) {
	violated := func(seeds int, o options, story func(w *world)) int {
		k := 0
		for seed := range uint64(seeds) {
			o.seed = seed
			w := newWorld(o)
			story(w)
			if w.check.err != nil {
				k++
			}
		}
		return k
	}
	partition := func(d int64) func(w *world) {
		return func(w *world) {
			a, b := w.start("a"), w.start("b")
			w.runUntil(10_000, w.settled)
			w.run(2000 + w.rng.Int64N(1000))
			w.isolate([]*node{a}, []*node{b}, false, true, true, d)
			w.run(d)
		}
	}
	if k := violated(200, options{drift: 100_000}, partition(12_000)); k == 0 {
		t.Error("clocks that drift by 10 %: no violation in 200 runs")
	}
	pause := func(w *world) {
		a, b := w.start("a"), w.start("b")
		w.runUntil(10_000, w.settled)
		w.run(2000 + w.rng.Int64N(1000))
		a.pause(8000)
		w.run(8000)
		_ = b
	}
	if k := violated(50, options{}, pause); k < 45 {
		t.Errorf("a machine that is paused with its clock: %d violations in 50 runs", k)
	}
	old := func(w *world) {
		w.start("a")
		w.runUntil(10_000, w.settled)
		w.run(2000)
		w.isolated("z", 60_000, nil)
		w.run(60_000)
	}
	if k := violated(100, options{stale: 20_000}, old); k == 0 {
		t.Error("listings 20 s old that are taken for new: no violation in 100 runs")
	}
}
