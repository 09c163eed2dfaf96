package member_test

import (
	"fmt"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Views are spread over servers; the one that keeps the newest is down.
const servers = 3

// goesDown is what happens to the server that keeps view e.
func (w *world) goesDown(e locks.Epoch) {
	w.logf("the server of view %d is down", e)
	w.store.Away = func(x locks.Epoch) bool { return x%servers == e%servers }
}

func (w *world) comesBack() {
	w.logf("all servers are back")
	w.store.Away = nil
}

// serverDown is a fault: the server of the newest view is down, or that of the next one.
var serverDown = fault{"server down", func(w *world, _ *node, d int64) int64 {
	if w.store.Away == nil {
		w.goesDown(w.store.Newest + locks.Epoch(w.rng.IntN(2)))
		w.after(d*ms, w.comesBack)
	}
	return d
}}

// Beside all other faults, nobody is live who should not be, and all go on.
func TestRandomSchedulesWithServersDown(t *testing.T) {
	for seed := *flagFirst; seed < *flagFirst+int64(*flagSeeds); seed++ {
		o := randomOptions(seed)
		o.servers = true
		if r := schedule(o, false); r.w.check.err != nil {
			t.Fatalf("schedule %d: %v", seed, r.w.check.err)
		}
	}
}

// A view that cannot be seen for a while ends nobody: neither those who are members, nor one
// that is started meanwhile, though an admin has said that nothing was restored.
func TestTheServerOfTheNewestViewIsDown(t *testing.T) {
	for _, cache := range []int64{0, 3000} {
		for _, killed := range []int{0, 1, 2, 3} {
			t.Run(fmt.Sprintf("listings %d ms old, %d killed", cache, killed), func(t *testing.T) {
				tell(t, 20, options{cache: cache, stale: cache}, func(s *scene) {
					n := s.cluster(3)
					s.setPolicy(n[0], "p") // so that the view before the newest can be read
					s.run(10_000)
					for range 2 {
						newest := s.check.top.Epoch
						s.goesDown(newest)
						s.run(15_000)
						s.expect(!n[0].granting() && !n[1].granting() && !n[2].granting(), "nobody to grant without the newest view")
						for i := range killed {
							n[i].kill()
						}
						for i := range killed {
							s.run(s.rng.Int64N(2000))
							n[i] = s.startOn(n[i].name, n[i].host, nil)
						}
						s.run(55_000)
						for _, x := range n {
							s.expect(x.end == nil, "%s to wait, not %v", x.name, x.end)
						}
						s.expect(s.check.top.Epoch == newest || killed > 0, "no view, not %v", s.check.top)
						s.comesBack()
						s.until(30_000+7*cache, "all to go on by themselves", s.settled)
						s.run(30_000)
					}
				})
			})
		}
	}
}

// A server that is down now and then leaves some looks that fail, and some that show less
// than there is. All in all that is not a view that is missing for long.
func TestLooksThatShowLessNowAndThen(t *testing.T) {
	tell(t, 20, options{}, func(s *scene) {
		n := s.cluster(1 + int(s.opt.seed%2))
		s.setPolicy(n[0], "p")
		s.run(10_000)
		s.goesDown(s.check.top.Epoch)
		looks := 0
		s.store.Unseeable = func() bool { looks++; return looks%3 == 0 }
		s.run(80_000)
		for _, x := range n {
			s.expect(x.end == nil, "%s to wait, not %v", x.name, x.end)
		}
		s.comesBack()
		s.until(30_000, "all to go on", s.settled)
	})
}

// What is missing for good is still told: by members, and by who is started.
func TestWhatIsMissingIsToldBesideAServerThatIsDown(t *testing.T) {
	tell(t, 20, options{}, func(s *scene) {
		n := s.cluster(2)
		for i := range 3 {
			s.setPolicy(n[0], fmt.Sprint(i))
			s.run(1000)
		}
		newest := s.check.top.Epoch
		n[1].kill()
		s.goesDown(newest)
		s.run(10_000)
		s.restore(newest - 1) // which has the newest no more
		s.comesBack()
		b := s.startOn("b", n[1].host, nil)
		s.until(40_000, "both to end", func() bool { return n[0].end != nil && b.end != nil })
		s.expect(n[0].end == nil || n[0].end.Code == member.EndLost, "EndLost, not %v", n[0].end)
		s.expect(b.end == nil || b.end.Code == member.EndRestored, "EndRestored, not %v", b.end)
	})
}

// Of a listing that is not whole nothing is concluded but what it shows.
func TestAListingThatIsNotWhole(t *testing.T) {
	c := testConfig("a")
	c.Self.Cache = 0
	v := &member.View{Cluster: testCluster, Protocol: member.Protocol, Epoch: 3, Timing: c.Params.Timing, Members: []member.Member{{Node: member.Node{Peer: "b", Inc: 7}}}}
	missing := member.Look{Newest: 3, View: v}
	hidden := missing
	hidden.Hidden = true
	for what, x := range map[string]struct {
		first, second member.Done
		ends          bool
	}{
		"missing":         {member.Done{Look: missing}, member.Done{Look: missing}, true},
		"not whole":       {member.Done{Look: hidden}, member.Done{Look: hidden}, false},
		"now and then":    {member.Done{Look: missing}, member.Done{Look: hidden}, false},
		"some looks fail": {member.Done{Look: missing}, member.Done{Err: errIO}, false},
		"of both":         {member.Done{Look: hidden}, member.Done{Err: errIO}, false},
	} {
		m, err := member.New(c)
		if err != nil {
			t.Fatal(err)
		}
		var out member.Output
		m.Step(1000, member.Start{Saved: member.Saved{Was: true, Epoch: 4}}, &out)
		looks := 0
		for now := int64(1000); now < 20_000 && out.End == nil; now += c.Params.Tick {
			op, ok := out.Storage.(member.LookOp)
			if !ok {
				m.Step(now, member.Tick{}, &out)
				continue
			}
			if op.Linked != 4 || op.Known > 3 {
				t.Fatalf("%s: look %+v, of who has known view 4", what, op)
			}
			res := x.first
			if looks++; looks%2 == 0 {
				res = x.second
			}
			res.Op, res.Look.Began = op, now
			m.Step(now, res, &out)
		}
		if ended := out.End != nil; ended != x.ends || looks < 2 {
			t.Errorf("%s: end %v after %d looks", what, out.End, looks)
		}
	}
}
