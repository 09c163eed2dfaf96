package member_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// copyOf is a host to which the state directory of h was copied.
func (w *world) copyOf(h *host) *host {
	c := w.newHost()
	c.saved, c.lives = h.saved, slices.Clone(h.lives)
	return c
}

func (n *node) twinRefused() bool { return n.end != nil && n.end.Code == member.EndTwin }

// A process with the identity of a member ends, and disturbs nobody.
func TestCopiedIdentityIsRefused(t *testing.T) {
	for members := 1; members <= 3; members++ {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			tell(t, 20, options{clones: true}, func(s *scene) {
				n := s.cluster(members)
				views := s.check.views
				c := s.startOn("a", s.copyOf(n[0].host), nil)
				s.expect(s.pause(3000, n...) == 0, "the members to go on")
				s.expect(c.twinRefused(), "the copy to be refused, not %s", c.describe())
				s.run(10_000)
				s.expect(s.newViews(views) == 0 && n[0].expelled == 0, "no new view")
			})
		})
	}
}

// The original does not answer in time, since its storage hangs.
func TestCopyWhileTheStorageOfTheOriginalHangs(t *testing.T) {
	tell(t, 20, options{clones: true}, func(s *scene) {
		n := s.cluster(2)
		n[0].hang(12_000)
		c := s.startOn("a", s.copyOf(n[0].host), nil)
		s.run(11_000)
		s.expect(c.alive && c.m.State() == member.StateOut, "the copy to wait, not %s", c.describe())
		s.run(10_000)
		s.expect(c.twinRefused(), "the copy to be refused, not %s", c.describe())
		s.until(5000, "the original to go on", s.settled)
		s.expect(n[0].expelled == 0, "the original to stay")
	})
}

// All that answers late finds the copy in the view. That goes again.
func TestCopyWhileAllAreSlow(t *testing.T) {
	tell(t, 20, options{clones: true}, func(s *scene) {
		n := s.cluster(1)
		n[0].stop(4500) // as long as it loses nothing
		c := s.startOn("a", s.copyOf(n[0].host), nil)
		s.until(15_000, "the copy to be refused", c.twinRefused)
		s.until(10_000, "the original to go on", s.settled)
		s.expect(n[0].alive && n[0].expelled == 0, "the original to stay")
	})
}

// A copy that starts when the original is dead or stopped takes its place, as
// the original itself would on another host. Then the original is the second.
func TestCopyTakesThePlaceOfAStoppedOriginal(t *testing.T) {
	for members := 1; members <= 2; members++ {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			tell(t, 20, options{clones: true}, func(s *scene) {
				n := s.cluster(members)
				n[0].stop(20_000)
				c := s.startOn("a", s.copyOf(n[0].host), nil)
				s.until(20_000, "the copy to join", c.granting)
				s.run(30_000)
				s.expect(n[0].twinRefused(), "the original to be refused, not %s", n[0].describe())
				s.expect(s.settled(), "the others to go on")
			})
		})
	}
}

// Of two that start together one is a member, and the other is refused.
func TestOriginalAndCopyStartTogether(t *testing.T) {
	for _, tt := range []struct {
		name string
		prep func(s *scene) *host
	}{
		{"first of all", func(s *scene) *host { return s.newHost() }},
		{"when it has left", func(s *scene) *host {
			n := s.cluster(2)
			n[0].input(member.Leave{})
			s.until(5000, "it to leave", func() bool { return !n[0].alive })
			return n[0].host
		}},
		{"when it is dead", func(s *scene) *host {
			n := s.cluster(2)
			n[0].kill()
			return s.copyOf(n[0].host) // there is no proof
		}},
		{"when all are dead", func(s *scene) *host {
			n := s.cluster(2)
			n[0].kill()
			n[1].kill()
			return s.copyOf(n[0].host)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tell(t, 30, options{clones: true}, func(s *scene) {
				h := tt.prep(s)
				c := s.copyOf(h)
				x := s.startOn("a", h, nil)
				s.run(s.rng.Int64N(300))
				y := s.startOn("a", c, nil)
				s.until(40_000, "one of them to be refused", func() bool { return x.twinRefused() || y.twinRefused() })
				s.until(20_000, "the other one to go on", s.settled)
				s.expect(x.alive != y.alive, "one of them: %s; %s", x.describe(), y.describe())
			})
		})
	}
}

// A host that was started anew has no proof that its former self is dead, and
// waits no longer than before for the others to drop it.
func TestRebootedHostComesBack(t *testing.T) {
	for members := 1; members <= 3; members++ {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			tell(t, 20, options{}, func(s *scene) {
				n := s.cluster(members)
				n[0].kill()
				again := s.startOn("a", s.copyOf(n[0].host), nil)
				took := s.until(15_000, "it to come back", again.granting)
				s.expect(took < 10_000, "it to come back in 10 s, not %d ms", took)
			})
		})
	}
}

// Others may answer it and die as well, before they have dropped its former self:
// then it asks once more as soon as that could have answered.
func TestRebootedHostThatOthersAnswerBeforeTheyDie(t *testing.T) {
	tell(t, 50, options{}, func(s *scene) {
		n := s.cluster(2)
		n[0].kill()
		again := s.startOn("a", s.copyOf(n[0].host), nil)
		s.run(500 + s.rng.Int64N(2500))
		n[1].kill()
		s.until(settleBound(s.opt), "it to go on alone", s.settled)
		s.expect(again.granting(), "it to be the one, not %s", again.describe())
	})
}

// Without the rule the copy takes the connections of the original.
func TestCopyThatIsNotRefused(t *testing.T) {
	needsBugs(t)
	for seed := range uint64(20) {
		w := newWorld(options{seed: seed, clones: true, bug: "noTwins"})
		n := w.together(2)
		w.startOn("a", w.copyOf(n[0].host), nil)
		w.run(20_000)
		if n[0].expelled+n[1].expelled > 0 {
			return
		}
	}
	t.Error("the planted bug is not found")
}
