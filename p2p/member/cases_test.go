package member_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Cases beside the numbered stories: what admins do, and what storage does.

func wish(n *node, id uint64, ms int64) member.Wish {
	return member.Wish{ID: id, Deadline: n.clock() + ms}
}

// answered is the answer to a wish, if it has come.
func (n *node) answered(id uint64) (member.Answered, bool) {
	for _, a := range n.answers {
		if a.ID == id {
			return a, true
		}
	}
	return member.Answered{}, false
}

func TestSlowStorageAndNobodyAlive(t *testing.T) {
	tell(t, 20, options{slowAt: 4000}, func(s *scene) {
		a := s.start("a")
		s.until(60_000, "a to found the cluster", func() bool { return s.check.top != nil && a.m.State() == member.StateMember })
		a.kill()
		s.run(10_000)
		z := s.start("z")
		s.until(60_000, "z to take over", func() bool { return z.granting() && len(s.check.top.Members) == 1 })
	})
}

func TestRemoveDropsAndDoesNotBan(t *testing.T) {
	tell(t, 20, options{}, func(s *scene) {
		n := s.cluster(3)
		c := n[2].m.Self()
		n[0].input(member.Remove{Wish: wish(n[0], 1, 20_000), Node: c, Why: "it is broken"})
		why := ""
		s.until(6500, "its removal", func() bool { why = s.check.top.Why(c); return !s.check.top.Has(c) })
		s.expect(why == "removed by an admin: it is broken", "the admin's reason in the view, not %q", why)
		s.until(1000, "an answer", func() bool { a, ok := n[0].answered(1); return ok && a.Err == nil })
		s.expect(s.check.top.Reason == member.ReasonAdmin || s.check.top.HasPeer("c"), "the admin as the reason, not %s", s.check.top.Reason)
		s.until(3000, "it to be told, and to join again", func() bool { return n[2].expelled == 1 && s.settled() })
	})
}

func TestRemoveOfAStoppedMember(t *testing.T) {
	tell(t, 20, options{}, func(s *scene) {
		n := s.cluster(3)
		n[2].stop(60_000)
		n[0].input(member.Remove{Wish: wish(n[0], 1, 20_000), Node: n[2].m.Self()})
		took := s.until(7000, "its removal", func() bool { _, ok := n[0].answered(1); return ok })
		s.expect(took >= 4700, "no faster than by its silence, not %d ms", took)
	})
}

func TestRemoveIsRefusedWithAReason(t *testing.T) {
	tell(t, 1, options{}, func(s *scene) {
		n := s.cluster(2)
		for i, x := range []member.Node{n[0].m.Self(), {Peer: "nobody", Inc: 1}} {
			n[0].input(member.Remove{Wish: wish(n[0], uint64(i), 1000), Node: x})
			a, ok := n[0].answered(uint64(i))
			s.expect(ok && a.Err != nil, "an error at once")
		}
		// A wish that cannot be fulfilled ends at its deadline.
		for _, x := range n {
			x.hang(60_000)
		}
		s.run(6000)
		n[0].input(member.SetPolicy{Wish: wish(n[0], 7, 2000), Policy: member.Policy{Hash: "x"}})
		s.until(2200, "an error at the deadline", func() bool { a, ok := n[0].answered(7); return ok && a.Err != nil })
	})
}

func TestRevoke(t *testing.T) {
	tell(t, 20, options{}, func(s *scene) {
		n := s.cluster(3)
		n[0].input(member.Revoke{Wish: wish(n[0], 1, 20_000), Peer: "c"})
		s.until(2000, "c to be out", func() bool { return n[2].end != nil && !s.check.top.HasPeer("c") })
		s.expect(n[2].end.Code == member.EndRevoked && strings.Contains(n[2].end.Text, "revoked"), "it to be told why: %v", n[2].end)
		a, ok := n[0].answered(1)
		s.expect(ok && a.Err == nil, "an answer")
		s.until(500, "the others to go on", s.settled)

		again := s.startOn("c", n[2].host, nil)
		s.until(2000, "a revoked peer to be refused", func() bool { return again.end != nil })
		s.expect(again.end.Code == member.EndRevoked, "it to be told why: %v", again.end)

		n[1].input(member.Revoke{Wish: wish(n[1], 2, 20_000), Peer: "c", Undo: true})
		s.until(1000, "the undoing", func() bool { a, ok := n[1].answered(2); return ok && a.Err == nil })
		s.startOn("c", n[2].host, nil)
		s.until(2000, "it to be back", s.settled)
		s.expect(len(s.check.top.Members) == 3, "three members")
	})
}

// A revoked member that does not obey is dropped.
func TestRevokeOfAStoppedMember(t *testing.T) {
	tell(t, 10, options{}, func(s *scene) {
		n := s.cluster(3)
		n[2].stop(30_000)
		s.run(500)
		n[0].input(member.Revoke{Wish: wish(n[0], 1, 20_000), Peer: "c"})
		s.until(7000, "c to be dropped", func() bool { return !s.check.top.HasPeer("c") && allGrant(n[0], n[1])() })
		s.until(30_000, "c's end", func() bool { return n[2].end != nil && n[2].end.Code == member.EndRevoked })
	})
}

func TestPolicyChange(t *testing.T) {
	tell(t, 20, options{}, func(s *scene) {
		n := s.cluster(3)
		n[1].input(member.SetPolicy{Wish: wish(n[1], 1, 10_000), Policy: member.Policy{Hash: "h2", TOML: "x = 2\n"}})
		n[2].input(member.SetPolicy{Wish: wish(n[2], 2, 10_000), Policy: member.Policy{Hash: "h3"}})
		s.until(2000, "both answers", func() bool {
			a, ok1 := n[1].answered(1)
			b, ok2 := n[2].answered(2)
			return ok1 && ok2 && a.Err == nil && b.Err == nil
		})
		s.until(1000, "all to agree", s.settled)
		hash := s.check.top.Policy.Hash
		for _, x := range n {
			s.expect(x.m.View().Policy.Hash == hash, "the same policy everywhere")
		}
		// Who asks for another one is refused, who asks for none takes it.
		p := member.Policy{Hash: "other"}
		z := s.startOn("z", s.newHost(), func(c *member.Config) { c.Policy = &p })
		s.until(2000, "a refusal", func() bool { return z.end != nil })
		s.expect(z.end.Code == member.EndPolicy, "policy as the reason: %v", z.end)
		p.Hash = hash
		s.startOn("y", s.newHost(), func(c *member.Config) { c.Policy = &p })
		s.start("x")
		s.until(3000, "both to join", func() bool { return s.settled() && len(s.check.top.Members) == 5 })
	})
}

// A policy that changed while a member was expelled is no reason to stay out.
func TestFormerMemberTakesTheNewPolicy(t *testing.T) {
	tell(t, 10, options{}, func(s *scene) {
		p := member.Policy{Hash: "one"}
		with := func(c *member.Config) { c.Policy = &p }
		a := s.startOn("a", s.newHost(), with)
		s.run(1000)
		b := s.startOn("b", s.newHost(), with)
		s.until(3000, "a cluster", s.settled)
		b.stop(12_000)
		s.run(8000)
		s.setPolicy(a, "two")
		s.until(10_000, "b to be back", s.settled)
		s.expect(b.expelled == 1 && b.m.View().Policy.Hash == "two", "b to have the new policy")
	})
}

// Options that nobody has edited since the policy was changed keep nobody out,
// and bring the old policy back to nobody.
func TestReplacedPolicyIsServed(t *testing.T) {
	tell(t, 10, options{}, func(s *scene) {
		one, other := member.Policy{Hash: "one"}, member.Policy{Hash: "other"}
		asks := func(p *member.Policy) func(*member.Config) { return func(c *member.Config) { c.Policy = p } }
		a := s.startOn("a", s.newHost(), asks(&one))
		s.until(6000, "a cluster", allGrant(a))
		for _, h := range []string{"two", "one", "three"} {
			s.setPolicy(a, h)
			s.until(2000, "the change", func() bool { return s.settled() && a.m.View().Policy.Hash == h })
		}
		got := a.m.View().Policy.Replaced
		s.expect(slices.Equal(got, []string{"one", "two"}), "what was replaced: %v", got)
		b := s.startOn("b", s.newHost(), asks(&one))
		s.until(3000, "a newcomer with the first policy to join", func() bool { return s.settled() && len(s.check.top.Members) == 2 })
		s.expect(b.m.View().Policy.Hash == "three", "it to get the present one")
		z := s.startOn("z", s.newHost(), asks(&other))
		s.until(2000, "another one to be refused", func() bool { return z.end != nil && z.end.Code == member.EndPolicy })
		// Also when all leave, and when all of them die.
		for _, x := range []*node{a, b} {
			x.input(member.Leave{})
		}
		s.until(3000, "both to have left", func() bool { return a.end != nil && b.end != nil })
		a = s.startOn("a", a.host, asks(&one))
		s.until(6000, "a cluster", allGrant(a))
		s.expect(a.m.View().Policy.Hash == "three", "the change to stay")
		a.kill()
		s.run(200)
		a = s.startOn("a", a.host, asks(&one))
		s.until(6000, "a cluster", allGrant(a))
		s.expect(a.m.View().Policy.Hash == "three", "the change to stay")
	})
}

// A node that was a member before and is started with other options is refused
// like any other; but not because of its own former self.
func TestRestartWithAnotherPolicy(t *testing.T) {
	tell(t, 10, options{}, func(s *scene) {
		one, other := member.Policy{Hash: "one"}, member.Policy{Hash: "other"}
		asks := func(p *member.Policy) func(*member.Config) { return func(c *member.Config) { c.Policy = p } }
		a := s.startOn("a", s.newHost(), asks(&one))
		s.until(6000, "a cluster", allGrant(a))
		a.kill()
		s.run(200)
		a = s.startOn("a", a.host, asks(&other))
		s.until(6000, "a cluster", allGrant(a))
		s.expect(a.m.View().Policy.Hash == "other" && a.m.View().Policy.Replaced == nil, "the sole member's policy")
		b := s.start("b")
		s.until(3000, "a second member", func() bool { return s.settled() && len(s.check.top.Members) == 2 })
		b.input(member.Leave{})
		s.until(3000, "it to leave", func() bool { return b.end != nil })
		b = s.startOn("b", b.host, asks(&one))
		s.until(3000, "it to be refused", func() bool { return b.end != nil })
		s.expect(b.end.Code == member.EndPolicy, "the policy as the reason: %v", b.end)
	})
}

func TestOtherTimesAreRefused(t *testing.T) {
	tell(t, 5, options{}, func(s *scene) {
		n := s.cluster(1)
		z := s.startOn("z", s.newHost(), func(c *member.Config) { c.Params = member.Fast() })
		s.until(2000, "a refusal", func() bool { return z.end != nil })
		s.expect(z.end.Code == member.EndTiming && strings.Contains(z.end.Text, "tenure"), "the times as the reason: %v", z.end)
		y := s.startOn("y", s.newHost(), func(c *member.Config) { c.Params.CacheMax, c.Self.Cache = 90_000, 90_000 })
		s.until(2000, "a refusal", func() bool { return y.end != nil })
		s.expect(y.end.Code == member.EndTiming && strings.Contains(y.end.Text, "listings"), "the listings as the reason: %v", y.end)
		s.expect(allGrant(n...)(), "the member not to be disturbed")
	})
}

// When all have left, the next one may bring other times and another policy.
func TestFoundingAnewAfterAllLeft(t *testing.T) {
	tell(t, 10, options{}, func(s *scene) {
		for _, x := range s.cluster(2) {
			x.input(member.Leave{})
		}
		s.until(3000, "an empty view", func() bool { return s.check.top != nil && len(s.check.top.Members) == 0 })
		e := s.check.top.Epoch
		p := member.Policy{Hash: "new"}
		z := s.startOn("z", s.newHost(), func(c *member.Config) { c.Params, c.Policy = member.Fast(), &p })
		s.until(200, "z to found it anew at once", s.settled)
		s.expect(s.check.top.Epoch == e+1 && z.m.View().Policy.Hash == "new" && z.m.View().Timing.Tenure == 2000, "the next epoch, with z's policy and times")
	})
}

func TestFenceCommandComesBeforeTheDrop(t *testing.T) {
	tell(t, 20, options{fence: true}, func(s *scene) {
		n := s.cluster(3)
		views := s.check.views
		s.fenceFails = s.now + 20*second
		n[2].kill()
		s.run(15_000)
		s.expect(s.newViews(views) == 0 && s.onlyGranting(), "nobody to go on while the node cannot be fenced")
		s.until(15_000, "the others to go on after it", s.settled)
		s.expect(s.fencedFirst[s.check.top.Epoch], "the fence before the link")
	})
}

// A member whose fence failed may come back: nothing has happened to it.
func TestFailedFenceIsTakenBack(t *testing.T) {
	tell(t, 20, options{fence: true}, func(s *scene) {
		n := s.cluster(2)
		views := s.check.views
		s.fenceFails = s.now + 60*second
		n[1].stop(8000)
		s.run(8100)
		s.until(6000, "both to go on", s.settled)
		s.expect(s.newViews(views) == 0, "no view")
	})
}

// Proof of death by another process on the host, given to a member.
func TestDeadMemberIsDroppedAtOnce(t *testing.T) {
	tell(t, 20, options{}, func(s *scene) {
		n := s.cluster(3)
		dead := n[2].m.Self()
		n[2].kill()
		n[0].input(member.Dead{Node: dead, How: "its process has ended"})
		s.until(400, "the others to go on", s.settled)
		s.expect(s.check.top.Why(dead) == "its process has ended", "why: %q", s.check.top.Why(dead))
	})
}

// The parent of a daemon that does not restart it takes it out of the view.
func TestBury(t *testing.T) {
	tell(t, 20, options{}, func(s *scene) {
		n := s.cluster(2)
		dead := n[1].m.Self()
		n[1].kill()
		u := s.startOn("undertaker", s.newHost(), func(c *member.Config) { c.Bury = dead })
		s.until(500, "its work to be done", func() bool { return u.end != nil && s.settled() })
		s.expect(u.end.Code == member.EndLeft && !s.check.top.HasPeer("b"), "b to be gone: %v", u.end)
		again := s.startOn("undertaker", s.newHost(), func(c *member.Config) { c.Bury, c.Params = dead, member.Fast() })
		s.until(500, "nothing left to do", func() bool { return again.end != nil })
	})
}

func TestLeaveBeforeJoining(t *testing.T) {
	tell(t, 40, options{}, func(s *scene) {
		s.cluster(2)
		z := s.start("z")
		s.run(s.rng.Int64N(500))
		z.input(member.Leave{})
		s.until(5000, "it to end", func() bool { return z.end != nil && z.end.Code == member.EndLeft })
		s.until(1000, "the others not to wait for it", s.settled)
	})
}

func TestLeaveWhenTheStorageHangs(t *testing.T) {
	tell(t, 10, options{}, func(s *scene) {
		n := s.cluster(2)
		n[1].hang(60_000)
		n[1].input(member.Leave{})
		took := s.until(6000, "it to end", func() bool { return n[1].end != nil })
		s.expect(took >= 4900 && n[1].end.Code == member.EndLeft && n[1].end.Text != "", "it to say that it gave up: %v", n[1].end)
	})
}

func TestRegisterThatIsRemoved(t *testing.T) {
	tell(t, 10, options{}, func(s *scene) {
		n := s.cluster(2)
		s.check.free = true
		s.store.Clear(s.now)
		s.run(6200)
		s.expect(s.onlyGranting(), "nobody to grant after Ls")
		s.until(40_000, "both to give up", func() bool { return n[0].end != nil && n[1].end != nil })
		s.expect(n[0].end.Code == member.EndLost && strings.Contains(n[0].end.Text, ".dmxfs"), "why: %v", n[0].end)
	})
}

func TestViewOfAnotherKind(t *testing.T) {
	for _, c := range []struct {
		err  error
		code member.EndCode
	}{{member.ErrForeign, member.EndForeign}, {member.ErrNewer, member.EndNewer}} {
		tell(t, 5, options{}, func(s *scene) {
			n := s.cluster(2)
			s.store.Damage(s.check.top.Epoch+1, c.err)
			v := *s.check.top
			v.Epoch++
			s.store.Link(s.now, &v) // by something that is no node of this world
			z := s.start("z")
			s.until(1000, "a newcomer to give up at once", func() bool { return z.end != nil })
			s.expect(z.end.Code == c.code, "why: %v", z.end)
			s.until(20_000, "the members to give up", func() bool { return n[0].end != nil && n[1].end != nil })
			s.expect(n[0].end.Code == c.code && n[0].expelled == 1, "why: %v", n[0].end)
		})
	}
}

// The newest view is damaged for good, also for those who are in it.
func TestDamagedViewIsTakenOver(t *testing.T) {
	p := member.Default()
	p.CacheMax = 3000
	tell(t, 20, options{params: p}, func(s *scene) {
		n := s.cluster(3)
		s.damageNext = 3_600_000
		views := s.check.views
		s.setPolicy(n[0], "x")
		s.until(1000, "the damaged view", func() bool { return s.newViews(views) == 1 })
		s.until(60_000, "all to be together above it", func() bool { return s.settled() && !s.damaged() })
		s.expect(s.check.reasons[member.ReasonUnreadable] >= 1, "rule Unreadable to be used")
	})
}

// It is damaged for one who was asleep; the others send it what it says.
func TestDamagedViewComesByMessage(t *testing.T) {
	tell(t, 20, options{}, func(s *scene) {
		n := s.cluster(3)
		n[2].stop(3000)
		s.run(100)
		views := s.check.views
		s.setPolicy(n[0], "x")
		s.until(1000, "a view", func() bool { return s.newViews(views) == 1 && n[0].m.Epoch() == n[1].m.Epoch() })
		s.run(500)
		s.store.Damage(s.check.top.Epoch, member.ErrUnreadable)
		s.until(5000, "all to go on in it", s.settled)
		s.expect(s.newViews(views) == 1, "no other view")
	})
}

func TestLastEpoch(t *testing.T) {
	tell(t, 1, options{}, func(s *scene) {
		s.check.free = true
		v := &member.View{Cluster: strings.Repeat("c", 32), Epoch: member.MaxEpoch, By: member.Node{Peer: "x", Inc: 1}, Reason: member.ReasonLeave}
		s.store.Link(0, v)
		a := s.start("a")
		s.run(2000)
		s.expect(a.m.State() == member.StateOut && a.m.Epoch() == member.MaxEpoch, "no view after the last")
		found := false
		for _, x := range a.notices {
			found = found || strings.Contains(x.Text, "epochs")
		}
		s.expect(found, "a notice that says so")
	})
	if f := locks.TokenFloor(member.MaxEpoch); f == 0 || locks.TokenFloor(member.MaxEpoch+1) > f {
		t.Error("MaxEpoch is not the last epoch of the tokens")
	}
}

// Trouble that lasts is told once, and that it is over.
func TestLastingTroubleIsToldOnce(t *testing.T) {
	tell(t, 5, options{}, func(s *scene) {
		n := s.cluster(2)
		n[0].notices = nil
		n[1].kill()
		n[0].disk.linkErrs = true
		s.run(30_000)
		told := func() (k int) {
			for _, x := range n[0].notices {
				if x.Kind == member.Storage {
					k++
				}
			}
			return k
		}
		s.expect(told() == 1, "one notice, not %d", told())
		s.expect(strings.Contains(n[0].m.Status().Disk, "cannot be linked"), "the trouble in the status: %q", n[0].m.Status().Disk)
		n[0].disk.linkErrs = false
		s.until(2000, "it to go on", s.settled)
		s.expect(told() == 2, "that it is over, not %d", told())
	})
}

// A cluster as large as all-to-all heartbeats are meant for.
func TestManyNodes(t *testing.T) {
	many := 40
	if *flagLong {
		many = 100
	}
	tell(t, 1, options{lan: true}, func(s *scene) {
		var nodes []*node
		for i := range many {
			nodes = append(nodes, s.start("n"+string([]byte{'0' + byte(i/10), '0' + byte(i%10)})))
			s.run(s.rng.Int64N(20))
		}
		took := s.until(15_000, "one view", s.settled)
		t.Logf("%d nodes: together after %d ms in %d views", many, took, s.check.views)
		at := s.now
		sent := s.sent
		s.run(5000)
		perSecond := float64(s.sent-sent) / (float64(s.now-at) / 1e6)
		want := float64(many*(many-1)) * 2
		s.expect(perSecond < 1.2*want, "about %.0f messages a second, not %.0f", want, perSecond)
		nodes[7].kill()
		s.until(6000, "the others to go on", s.settled)
	})
}
