package member_test

import (
	"fmt"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// restore takes the views above epoch e from the storage, as one does that
// puts an old copy in its place.
func (w *world) restore(e locks.Epoch) {
	for w.store.Newest > e {
		w.store.Remove(w.now, w.store.Newest)
		w.store.Newest--
	}
	w.check.free = true // of the rules of a chain
}

// An epoch, and so a fencing token, is never given for a second time.
func TestRestoredStorage(t *testing.T) {
	tell(t, 30, options{}, func(s *scene) {
		n := s.cluster(2)
		for i := range 5 {
			s.setPolicy(n[0], fmt.Sprint(i))
			s.run(1000)
		}
		newest := s.check.top.Epoch
		for _, x := range n {
			if s.opt.seed%2 == 0 {
				x.kill()
			} else {
				x.input(member.Leave{})
				s.run(6000)
			}
		}
		newest = max(newest, s.check.top.Epoch)
		s.restore(newest - 4)
		for _, x := range n {
			again := s.startOn(x.name, x.host, nil)
			s.until(5000, "the former member to see it", func() bool { return again.end != nil })
			s.expect(again.end == nil || again.end.Code == member.EndRestored, "EndRestored, not %v", again.end)
		}
		first := s.startOn("a", n[0].host, func(c *member.Config) { c.Restored = true })
		s.until(10_000, "an admin's word to be enough", first.granting)
		s.expect(s.check.top.Epoch > newest, "an epoch above %d, not %d", newest, s.check.top.Epoch)
		s.startOn("b", n[1].host, nil)
		s.until(10_000, "the other one to join", s.settled)
		// The option does nothing where nothing is lost.
		views := s.check.views
		first.kill()
		s.startOn("a", n[0].host, func(c *member.Config) { c.Restored = true })
		s.until(10_000, "it to come back", s.settled)
		s.expect(s.newViews(views) <= 3, "no view but for its return")
	})
}

// Without what is kept, the same epochs are given again.
func TestEpochsGoBackIfNobodyKeepsThem(t *testing.T) {
	needsBugs(t)
	w := newWorld(options{bug: "forgetEpoch"})
	n := w.together(1)
	for i := range 5 {
		w.setPolicy(n[0], fmt.Sprint(i))
		w.run(1000)
	}
	newest := w.check.top.Epoch
	n[0].kill()
	w.restore(newest - 4)
	w.check.top = nil
	again := w.startOn("a", n[0].host, nil)
	w.runUntil(10_000, again.granting)
	if w.check.top == nil || w.check.top.Epoch > newest {
		t.Errorf("view %v; the planted bug is not found", w.check.top)
	}
}

// The directory of the cluster was made anew while a member stood still: its number
// of the file cluster is of before. It is started anew, whether it is the first one
// to see that, or the others are members again.
func TestMadeAnewWhileAMemberStoodStill(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("first %v", first), func(t *testing.T) {
			tell(t, 20, options{}, func(s *scene) {
				n := s.cluster(2)
				n[1].kill()
				s.run(1)
				made, err := n[1].m.View().Again("b", 77, "2026-01-01T00:00:00Z")
				if err != nil {
					t.Fatal(err)
				}
				n[0].stop(made.GivenUp() + 10_000)
				for e := locks.Epoch(1); e <= s.store.Newest; e++ {
					s.store.Remove(s.now, e)
				}
				s.run(made.GivenUp())
				s.check.free = true
				if err := s.store.Link(s.now, made); err != nil {
					t.Fatal(err)
				}
				if first {
					s.until(60_000, "the member to go on", func() bool { return n[0].end != nil })
				}
				anew := func(c *member.Config) { c.FileID, c.TakesPath = "inode 2", false }
				again := s.startOn("b", n[1].host, anew)
				s.until(20_000, "the other one to come back", again.granting)
				s.until(60_000, "the member to end", func() bool { return n[0].end != nil })
				s.expect(n[0].end != nil && n[0].end.Code == member.EndLost, "EndLost, not %v", n[0].end)
				s.startOn("a", n[0].host, anew)
				s.until(20_000, "both to be members", s.settled)
			})
		})
	}
}

// A listing that is not older than S is no sign of storage that was restored, though the
// clock of who looks has jumped since it began.
func TestALateListingIsNotRestoredStorage(t *testing.T) {
	for _, restored := range []bool{false, true} {
		c := testConfig("a")
		c.Self.Cache = 1000
		v := &member.View{Cluster: testCluster, Protocol: member.Protocol, Epoch: 3, Timing: c.Params.Timing, Members: []member.Member{{Node: member.Node{Peer: "b", Inc: 7}}}}
		m, err := member.New(c)
		if err != nil {
			t.Fatal(err)
		}
		var out member.Output
		const began, jump = 1000, 5000
		m.Step(began, member.Start{Saved: member.Saved{Was: true, Epoch: 4}}, &out)
		ended := int64(0)
		for passed := int64(0); passed < 5000 && ended == 0; passed += c.Params.Tick {
			now := began + passed
			if passed > 200 {
				now += jump
			}
			shown := *v
			if passed >= c.Self.Cache && !restored {
				shown.Epoch = 4
			}
			if op, ok := out.Storage.(member.LookOp); ok {
				m.Step(now, member.Done{Op: op, Look: member.Look{Began: now, Newest: shown.Epoch, View: &shown}}, &out)
			} else {
				m.Step(now, member.Tick{}, &out)
			}
			if out.End != nil {
				ended = passed
				if out.End.Code != member.EndRestored {
					t.Fatal(out.End.Text)
				}
			}
		}
		if restored && ended < c.Self.Cache || !restored && ended > 0 {
			t.Errorf("restored %v: it ended after %d ms", restored, ended)
		}
	}
}
