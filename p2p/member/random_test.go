package member_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/p2p/member"
)

var (
	flagSeeds = flag.Int("member.seeds", long.Pure(40, long.Or(80, 200)), "how many random schedules to run")
	flagSeed  = flag.Int64("member.seed", -1, "run this schedule only, with its trace")
	flagFirst = flag.Int64("member.first", 0, "the first of the random schedules")
	flagCache = flag.Int64("member.cache", -1, "S in ms, and the age that listings really have, of all schedules")
	flagDrift = flag.Int64("member.drift", 1000, "how far clocks drift apart, in millionths")
	flagLong  = flag.Bool("member.long", false, "run the larger searches")
)

// outcome is what a random schedule came to.
type outcome struct {
	w        *world
	settling int64 // ms from the last fault until all nodes grant
	faults   int
	affected int // nodes that a fault happened to
	grew     int // views after the first settling
}

// schedule runs one random schedule: some nodes come together, then trouble
// comes, then everything is well again and the nodes have to come together.
func schedule(o options, tracing bool) outcome {
	w := newWorld(o)
	w.tracing = tracing
	rng := w.rng
	r := outcome{w: w}

	n := 1 + rng.IntN(4)
	if rng.IntN(4) == 0 {
		n = 5 + rng.IntN(5)
	}
	for i := range n {
		w.start(string(rune('a' + i)))
		w.run(rng.Int64N(200))
	}
	if rng.IntN(8) > 0 { // else the trouble begins at once
		w.runUntil(12_000+3*o.cache, w.settled)
	}
	views := w.check.views
	w.run(rng.Int64N(3000))

	last := w.now
	r.faults = 1 + rng.IntN(5)
	for range r.faults {
		w.run(rng.Int64N(9000))
		alive := w.running()
		if w.check.err != nil || len(alive) == 0 {
			break
		}
		victim := alive[rng.IntN(len(alive))]
		f := faults[rng.IntN(len(faults))]
		if o.takeovers && rng.IntN(2) == 0 {
			f = replaced[rng.IntN(len(replaced))]
		}
		if o.servers && rng.IntN(2) == 0 {
			f = serverDown
		}
		if o.kills && rng.IntN(2) == 0 {
			f = killed[rng.IntN(len(killed))]
		}
		length := 200 + rng.Int64N(6000)
		if rng.IntN(3) == 0 {
			length = 5000 + rng.Int64N(15_000)
		}
		w.logf("--- fault: %s, %s, %d ms", f.name, victim.name, length)
		r.affected++
		last = max(last, w.now+f.do(w, victim, length)*ms)
	}
	r.settling = w.converge(last)
	r.grew = w.check.views - views
	// L3, loosely: each fault can happen to all nodes, and some come twice.
	if most := 4*r.faults*len(w.nodes) + 10; r.grew > most && w.check.err == nil {
		w.check.failf("L3: %d views for %d faults to %d nodes", r.grew, r.faults, len(w.nodes))
	}
	return r
}

// converge waits for the end of the last fault, checks that all running nodes
// come together within the bound, and returns after how many milliseconds they
// have. A newcomer that dies just before it is added makes the others settle
// twice: so they may, within the bound, but not for ever.
func (w *world) converge(last int64) int64 {
	w.runUntil(120_000, func() bool { return w.now >= last && w.pending == 0 })
	w.logf("--- the last fault is over")
	well, settling := w.now, int64(0)
	bound := settleBound(w.opt)
	if w.damaged() {
		// Rule Unreadable, and holding back after it.
		p := w.opt.params
		bound += 2*(p.LookTenure+p.Delta) + w.opt.cache + p.CacheMax + 5000
	}
	for stable := false; !stable && w.check.err == nil; {
		if !w.runUntil(bound-(w.now-well)/ms, func() bool { return w.settled() && w.noWishes() }) && w.check.err == nil {
			w.check.failf("L1: not settled %d ms after the last fault", bound)
		}
		settling = (w.now - well) / ms
		at := w.check.views
		w.run(3000)
		stable = w.check.views == at && w.settled()
	}
	for _, x := range w.nodes {
		if x.end != nil && w.check.err == nil {
			w.checkEnd(x)
		}
	}
	return settling
}

// checkEnd: nobody gives up without a reason.
func (w *world) checkEnd(n *node) {
	switch n.end.Code {
	case member.EndLeft, member.EndUnreachable, member.EndPartial:
	case member.EndFileID, member.EndLost: // no view is lost: it was a member, and is started anew
		// By the view that it had then: who is alone may have changed that since.
		mine, view := member.FileID(n.m), n.m.View().FileID
		if mine == view || n.takesPath && view == member.FileIDPath && n.end.Code == member.EndFileID {
			w.check.failf("%s ended, and tells files apart as the others do: %s", n.name, n.end.Text)
		}
	default:
		w.check.failf("%s ended: %v: %s", n.name, n.end.Code, n.end.Text)
	}
}

// damaged reports whether the newest view cannot be read for good.
func (w *world) damaged() bool {
	return w.check.top != nil && w.store.Damaged(w.check.top.Epoch)
}

// settleBound is L1: how long, in milliseconds, after the last fault all
// running nodes grant in the newest view.
func settleBound(o options) int64 {
	p := o.params
	if p == (member.Params{}) {
		p = member.Default()
	}
	b := max(p.Tenure, p.LookTenure) + p.Delta + 3000 + p.BackoffMax + 1000 + 7*o.cache
	if o.fence {
		b += p.Tenure + 2000 // a fence command that failed is tried again
	}
	return b
}

// randomOptions are those of the random schedule of a seed.
func randomOptions(seed int64) options {
	o := options{seed: uint64(seed), params: member.Default(), drift: *flagDrift}
	o.params.CacheMax = 3000
	o.fence = seed%7 == 2
	o.slowEngine = seed%4 == 1
	o.params.Keep = 2 // names are pruned early, so that they are used again
	if seed%5 == 1 {
		o.cache, o.stale = 3000, -1
	}
	if *flagCache >= 0 {
		o.cache, o.stale = *flagCache, -1
		o.params.CacheMax = max(o.params.CacheMax, o.cache)
	}
	o.wire = seed%8 == 3
	if seed%6 == 1 {
		o.fileID = member.FileIDPath
	}
	return o
}

func TestRandomSchedules(t *testing.T) {
	first, seeds := *flagFirst, int64(*flagSeeds)
	if *flagSeed >= 0 {
		first, seeds = *flagSeed, 1
	}
	var total struct {
		checks, views, relinked, slowest int64
		settle                           []int64
		reasons                          map[string]int
	}
	total.reasons = map[string]int{}
	var worst outcome
	worstSeed := first
	for seed := first; seed < first+seeds; seed++ {
		r := schedule(randomOptions(seed), false)
		if r.w.check.err != nil {
			fail(t, r.w, fmt.Sprintf("go test ./p2p/member -run TestRandomSchedules -member.seed %d -member.cache %d -member.drift %d -v", seed, *flagCache, *flagDrift),
				func(tracing bool) *world { return schedule(randomOptions(seed), tracing).w })
			return
		}
		total.checks += int64(r.w.check.checks)
		total.views += int64(r.w.check.views)
		total.relinked += int64(r.w.store.Relinked)
		for reason, n := range r.w.check.reasons {
			total.reasons[reason] += n
		}
		if r.grew > worst.grew {
			worst, worstSeed = r, seed
		}
		total.settle = append(total.settle, r.settling)
	}
	p50, p99, top := percentiles(total.settle)
	t.Logf("most views after the first settling: %d in schedule %d, of %d faults and %d nodes", worst.grew, worstSeed, worst.faults, len(worst.w.nodes))
	t.Logf("%d schedules, %d checks, %d views %v, %d pruned names linked again; settling p50 %d ms, p99 %d ms, max %d ms",
		seeds, total.checks, total.views, total.reasons, total.relinked, p50, p99, top)
}
