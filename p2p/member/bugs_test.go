package member_test

import (
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// A planted bug takes one rule out of the protocol. If the simulator does not
// find a schedule that breaks, either the rule is not needed or the simulator
// cannot see. Each has the kind of schedule that finds it soonest.
var bugs = []struct {
	name  string
	seeds int // within how many it has to be found; about four times what it takes
	found func(seed uint64, bug string) error
}{
	{"promiseWhileProposing", 200, random},
	{"tenureFromReceipt", 200, random},
	{"grantWithoutSync", 50, random},
	{"answerOtherEpoch", 200, random},
	{"believeLink", 200, random},
	{"noLookTenure", 4000, random},
	{"noDelta", 2000, random},
	{"sleepIsSilence", 200, random},
	{"challengerAlone", 2000, random},
	{"sameIncarnation", 200, random},
	{"speakBeforeFreeze", 50, random},
	{"keepTenure", 50, random},
	{"replaceAnybody", 50, random},
	{"syncOnce", 2000, random},
	{"keepJoiners", 4000, random},
	{"anyFileID", 200, random},
	{"succeedAnyway", 400, takeovers},
	{"succeedAnyway", 20, lateSuccessor},
	{"heirIsProof", 20, copiedLedger},
	{"forgetClaims", 20, killedAtLink},
	{"claimIsNotKept", 20, killedAtLink},
	{"ledgerOfBefore", 20, killedAfterBegin},
	{"ledgerOfBefore", 400, kills},
	{"claimWhenLost", 20, killedWhenLost},
	{"noHolding", 20, damagedViewAndCutNewcomer},
	{"lookAtReply", 20, stoppedAfterListing},
	{"dropUnproved", 20, oldListingAndCutNewcomer},
	{"forgetUnknown", 100, lateLink},
	{"leaveForgets", 400, leaveDuringDrop},
	{"admitPartial", 20, cutPair},
	{"promiseOneWay", 20, deafMember},
}

// soon are seeds from which on bugs are found within a few, of those that take
// many from 0 on. After a change of the simulator they take as many as that.
var soon = long.OrPure(map[string]uint64{"promiseWhileProposing": 36, "noLookTenure": 249, "noDelta": 727, "challengerAlone": 88, "keepJoiners": 144}, nil)

func TestPlantedBugsAreFound(t *testing.T) {
	needsBugs(t)
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			if b.seeds > 1000 && long.Pure(true, testing.Short()) {
				t.Skip("takes many schedules: neither with -short nor with -race")
			}
			for i := range uint64(b.seeds) {
				seed := (i + soon[b.name]) % uint64(b.seeds)
				if err := b.found(seed, b.name); err != nil {
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
	seeds := long.OrPure(15, 50)
	if long.Pure(true, testing.Short()) {
		seeds = 5
	}
	for _, b := range bugs {
		for seed := range uint64(min(b.seeds, seeds)) {
			if err := b.found(seed, ""); err != nil {
				t.Errorf("%s, seed %d: %v", b.name, seed, err)
				break
			}
		}
	}
}

// More waiting time per tick than Params.Validate allows is unsafe under a
// clock that jumps.
func TestCapAboveDeltaIsUnsafe(t *testing.T) {
	if long.Pure(true, testing.Short()) {
		t.Skip("takes many schedules: neither with -short nor with -race")
	}
	for seed := range uint64(3000) {
		o := randomOptions(int64(seed))
		o.params.Cap = 600
		if err := o.params.Validate(); err == nil {
			t.Fatal("Validate allows a cap of 600 ms")
		}
		o.raw = true
		if r := schedule(o, false); r.w.check.err != nil {
			t.Logf("seed %d: %v", seed, r.w.check.err)
			return
		}
	}
	t.Error("not found")
}

func random(seed uint64, bug string) error {
	o := randomOptions(int64(seed))
	o.bug = bug
	return schedule(o, false).w.check.err
}

// takeovers is random with daemons that are replaced.
func takeovers(seed uint64, bug string) error {
	return withTakeovers(int64(seed), bug, false).w.check.err
}

// kills is random with daemons that are killed and succeeded.
func kills(seed uint64, bug string) error {
	return withKills(int64(seed), bug, false).w.check.err
}

// directed runs a story quietly; its outcome is that of the checks.
func directed(o options, story func(w *world)) error {
	w := newWorld(o)
	story(w)
	return w.check.err
}

// together starts n nodes and waits until they are in one view.
func (w *world) together(n int) []*node {
	for i := range n {
		w.start(string(rune('a' + i)))
		w.run(20)
	}
	w.runUntil(60_000+6*w.opt.cache, w.settled)
	w.run(2000)
	return w.running()
}

// The sponsor's reply is late and the other member's listing is old, so both
// live on at e while the newcomer installs e+1, cut off from both.
func oldListingAndCutNewcomer(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug, cache: 20_000, stale: 0}, func(w *world) {
		n := w.together(2)
		n[1].disk.stale = 20_000
		views := w.check.views
		z := w.start("z")
		w.runUntil(10_000, func() bool { return w.check.views > views })
		n[0].hang(8000)
		w.isolate([]*node{z}, n, false, true, true, 20_000)
		w.run(20_000)
	})
}

// The members of a view are alive, and a newcomer that reaches none of them
// cannot read it.
func damagedViewAndCutNewcomer(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug}, func(w *world) {
		w.together(2)
		w.store.Damage(w.check.top.Epoch, member.ErrUnreadable)
		w.isolated("z", 60_000, nil)
		w.run(30_000)
		if w.check.top.Reason != member.ReasonUnreadable && w.check.err == nil {
			w.check.failf("nobody took over")
		}
		w.store.Damage(w.check.top.Epoch, nil)
	})
}

// A sole member is stopped between its listing and the reply; a stranger takes
// over; the old listing is processed.
func stoppedAfterListing(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug}, func(w *world) {
		a := w.together(1)[0]
		a.disk.stopAt, a.disk.stopFor = afterListing, 20_000
		w.runUntil(2000, a.stopped)
		w.start("z")
		w.run(25_000)
	})
}

// A link fails, the partition heals, and then the link is carried out.
func lateLink(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug}, func(w *world) {
		n := w.together(2)
		a, b := n[0], n[1]
		a.disk.errs, a.disk.late, a.disk.lateBy = 1, 1, 8000
		b.hang(60_000)
		w.cutBoth(a, b, false)
		w.runUntil(7000, func() bool { return a.m.Status().Proposal != nil })
		w.run(w.rng.Int64N(300))
		w.healBoth(a, b)
		b.hang(0)
		w.run(9000)
	})
}

// The link that drops c is under way as its maker leaves.
func leaveDuringDrop(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug}, func(w *world) {
		n := w.together(3)
		a, b, c := n[0], n[1], n[2]
		w.cutBoth(a, c, false)
		w.runUntil(4000, func() bool { return false })
		b.hang(20_000)
		w.runUntil(4000, func() bool { return a.m.Status().Proposal != nil })
		a.disk.errs, a.disk.late, a.disk.lateBy = 1, 1, 4000
		w.run(w.rng.Int64N(20))
		w.healBoth(a, c)
		a.input(member.Leave{})
		w.run(6000)
	})
}

// One pair is cut for a minute: the loser must stay outside as long.
func cutPair(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug}, func(w *world) {
		n := w.together(5)
		views := w.check.views
		w.isolate(n[:1], n[1:2], false, true, true, 60_000)
		w.run(60_000)
		if k := w.check.views - views; k > 1 {
			w.check.failf("L3: %d views for one cut", k)
		}
	})
}

// A member that hears nothing must not keep its promises to the others, nor
// theirs to it: somebody has to be dropped.
func deafMember(seed uint64, bug string) error {
	return directed(options{seed: seed, bug: bug}, func(w *world) {
		n := w.together(3)
		views := w.check.views
		w.isolate(n[2:], n[:2], false, true, false, 60_000)
		w.run(9000)
		if !allGrant(n[0], n[1])() || w.check.views == views {
			w.check.failf("the members that hear each other do not go on")
		}
	})
}
