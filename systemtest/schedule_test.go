package systemtest

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/maekawa"
	"github.com/dmxfs/dmxfs/locks/rcv"
	"github.com/dmxfs/dmxfs/locks/ring"
	"github.com/dmxfs/dmxfs/locks/rw"
	"github.com/dmxfs/dmxfs/p2p/member"
)

var (
	flagSeeds = flag.Int("system.seeds", long.Pure(15, long.Or(60, 200)), "how many random schedules to run")
	flagFirst = flag.Int64("system.first", 0, "the first of the random schedules")
	flagSeed  = flag.Int64("system.seed", -1, "run this schedule only, with its trace")
	flagFor   = flag.Duration("system.for", 0, "begin no schedule after this time; 0: no limit")
)

// algorithms are all that serve locks.
var algorithms = map[string]*locks.Algorithm{
	maekawa.Algorithm.Name: &maekawa.Algorithm,
	rcv.Algorithm.Name:     &rcv.Algorithm,
	ring.Algorithm.Name:    &ring.Algorithm,
	rw.Algorithm.Name:      &rw.Algorithm,
}

// names are those of algorithms, in order.
var names = func() (list []string) {
	for name := range algorithms {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}()

// ran is what a schedule came to.
type ran struct {
	err      error
	settling time.Duration // from the last fault until all nodes grant
	world    *world
}

// randomOptions are those of the random schedule of a seed.
func randomOptions(seed int64) options {
	o := options{seed: uint64(seed), drift: 1000}
	o.params = member.Default()
	o.params.CacheMax = 3000
	switch seed % 10 {
	case 1:
		o.params = member.Fast()
		o.params.CacheMax = 3000
	case 3:
		o.cache = 3000
	case 5:
		o.writeBack = true
	case 7:
		o.drift = 9900 // 1 %, nearly
	case 9:
		o.fence = true
	}
	o.params.Keep = 2 // names are pruned early, so that they are used again
	if seed%3 == 1 {
		o.files, o.programs = 2, 3
	}
	o.rules = seed%6 == 3
	if seed%3 == 2 {
		o.algorithm = names[int(seed/3)%len(names)]
	}
	if seed%4 == 2 || seed%12 == 9 {
		o.many, o.files, o.programs, o.think = true, 12, 3, 150*ms
	}
	return o
}

// schedule runs one random schedule: some nodes come together, then trouble
// comes, then everything is well again: the nodes have to come together, and
// every request to end.
func schedule(t *testing.T, o options) (r ran) {
	r.world = inBubble(t, o, func(w *world) { r.settling = w.play() })
	r.err = r.world.check.err
	return r
}

func (w *world) play() time.Duration {
	rng := w.rng
	n := 2 + rng.IntN(3)
	if rng.IntN(8) == 0 {
		n = 1 + 4*rng.IntN(2)
	}
	for i := range n {
		w.start(string(rune('a' + i)))
		w.run(w.between(0, 200*ms))
	}
	if rng.IntN(8) > 0 { // else the trouble begins at once
		w.runUntil(12*time.Second+3*time.Duration(w.opt.cache)*ms, w.settled)
	}
	w.run(w.between(0, 2*time.Second))
	last := w.now()
	if w.opt.rules {
		for i := range 4 {
			w.after(w.between(0, 15*time.Second), func() {
				if r := w.running(); len(r) > 0 {
					w.setPolicy(r[w.rng.IntN(len(r))], fmt.Sprint("rules ", i))
				}
			})
		}
		last += 16 * time.Second
	}
	faults := faults
	if w.opt.wired {
		faults = wiredFaults()
	}
	if w.opt.edges {
		faults = slices.Concat(edges, edges, edges, faults)
	}
	if w.opt.takeovers {
		faults = slices.Concat(replacements, replacements, replacements, faults)
	}
	if w.opt.kills {
		faults = slices.Concat(kills, kills, kills, faults)
	}
	for range 1 + rng.IntN(4) {
		w.run(w.between(0, 5*time.Second))
		alive := w.running()
		if w.check.failed() || len(alive) == 0 {
			break
		}
		victim := alive[rng.IntN(len(alive))]
		f := faults[rng.IntN(len(faults))]
		length := w.between(200*ms, 6*time.Second)
		if rng.IntN(3) == 0 {
			length = w.between(5*time.Second, 15*time.Second)
		}
		w.logf("--- fault: %s, %s, %v", f.name, victim.name, length)
		last = max(last, w.now()+f.do(w, victim, length))
	}
	settling := w.converge(last)
	w.drain()
	return settling
}

// settleBound is how long after the last fault all running nodes grant in the
// newest view; see package member.
func (w *world) settleBound() time.Duration {
	p := w.opt.params
	b := max(p.Tenure, p.LookTenure) + p.Delta + 3000 + p.BackoffMax + 1000 + 5*w.opt.cache
	if w.opt.fence {
		b += p.Tenure + 2000
	}
	return time.Duration(b) * ms
}

// converge waits for the end of the last fault, and checks that all running
// nodes come together within the bound.
func (w *world) converge(last time.Duration) time.Duration {
	w.runUntil(60*time.Second, func() bool { return w.now() >= last && w.pending == 0 })
	w.logf("--- the last fault is over")
	well, settling := w.now(), time.Duration(0)
	for stable := false; !stable && !w.check.failed(); {
		if !w.runUntil(w.settleBound()-(w.now()-well), w.settled) {
			w.check.failf("not settled %v after the last fault", w.settleBound())
		}
		settling = w.now() - well
		at := w.check.views
		w.run(1500 * ms)
		stable = w.check.views == at && w.settled()
	}
	for _, p := range w.procs {
		if p.ended != nil {
			if !w.mayEnd(p) {
				w.check.failf("%s ended: %v: %s", p.name, p.ended.Code, p.ended.Text)
			}
		}
	}
	return settling
}

// drainBound is how long requests may take to end when nothing is wrong and
// nobody asks for more. Programs can wait in a circle in which one waits for
// nothing but its turn (seed 3125251): it goes before its turn after a while that
// doubles each time, to 30 s at most (engine: maxOvertake), and the way may lead
// through two such files.
const drainBound = 75 * time.Second

// drain lets programs begin nothing new, and checks that all they have begun
// ends, and that the newest data is what all see.
func (w *world) drain() {
	w.draining = true
	if !w.runUntil(drainBound, func() bool { return w.check.idle() == "" }) {
		w.check.failf("%v after the end of all trouble: %s", drainBound, w.check.idle())
	}
}

// schedules runs the schedules of so many seeds, or those that the flags tell, and has
// each looked at. The first one that fails ends the test. It returns how many it ran.
func schedules(t *testing.T, seeds int, of func(seed int64) options, look func(r ran)) (n int) {
	t.Helper()
	first := *flagFirst
	if *flagSeed >= 0 {
		first, seeds = *flagSeed, 1
	}
	began := time.Now()
	for n < seeds && (*flagFor == 0 || time.Since(began) <= *flagFor) {
		seed := first + int64(n)
		o := of(seed)
		o.tracing = *flagSeed >= 0
		r := schedule(t, o)
		if r.err != nil {
			report(t, o, r, fmt.Sprintf("go test ./systemtest -run '^%s$' -system.seed %d -v", t.Name(), seed))
			t.FailNow()
		}
		look(r)
		n++
	}
	t.Logf("%d schedules from %d in %v", n, first, time.Since(began).Round(time.Second))
	return n
}

func TestRandomSchedules(t *testing.T) {
	var sum struct{ moments, grants, losses, views, reads, writes, late, delegated int }
	var settle []time.Duration
	schedules(t, *flagSeeds, randomOptions, func(r ran) {
		c, d := r.world.check, r.world.data
		sum.moments += c.moments
		sum.grants += c.grants
		sum.losses += c.losses
		sum.views += c.views
		sum.reads += d.reads
		sum.writes += d.writes
		sum.late += d.lateWrites
		sum.delegated += r.world.delegated
		settle = append(settle, r.settling)
	})
	slices.Sort(settle)
	t.Logf("%d moments, %d grants (%d at a delegate), %d lost, %d views, %d reads, %d writes (%d kept back for long); settling p50 %v, p99 %v, max %v",
		sum.moments, sum.grants, sum.delegated, sum.losses, sum.views, sum.reads, sum.writes, sum.late,
		settle[len(settle)/2], settle[len(settle)*99/100], settle[len(settle)-1])
}

// report tells of a failure, with the trace of a run that is made again for it, if
// its seed decides it.
func report(t *testing.T, o options, r ran, replay string) {
	t.Helper()
	if o.wired {
		replay += " (perhaps)"
	}
	t.Errorf("%v\nreplay: %s", r.err, replay)
	if !o.tracing && !o.wired {
		o.tracing = true
		again := schedule(t, o)
		if again.err == nil || again.err.Error() != r.err.Error() {
			t.Errorf("made again, the schedule comes to another end: %v", again.err)
		}
		r = again
	}
	lines := r.world.trace
	const keep = 300
	if len(lines) > keep && !testing.Verbose() {
		t.Logf("the last %d lines of the trace (all with -v):", keep)
		lines = lines[len(lines)-keep:]
	}
	for _, l := range lines {
		t.Log(l)
	}
	t.Log("\n" + r.world.final)
}

// The same seed makes the same run, event for event. What goroutines do that run at one moment
// comes in an order of the runtime's, nearly always the same: it changes where the machine is so
// busy that the runtime takes the processor from one of them. So one seed may have an odd run.
func TestASeedIsARun(t *testing.T) {
	if long.Race {
		t.Skip("the race detector chooses the order of goroutines that run at one moment")
	}
	odd := 0
	for seed := range long.OrPure(int64(20), 40) {
		differs := secondRun(t, seed)
		if differs == "" {
			continue
		}
		t.Logf("seed %d: %s", seed, differs)
		odd++
		for range 3 {
			if differs := secondRun(t, seed); differs != "" {
				t.Errorf("seed %d: %s", seed, differs)
			}
		}
	}
	if odd > 1 {
		t.Errorf("%d seeds had two different runs", odd)
	}
}

// secondRun runs a seed twice, and says where the second run differs.
func secondRun(t *testing.T, seed int64) (differs string) {
	o := randomOptions(seed)
	o.tracing = true
	var traces [2][]string
	for i := range traces {
		traces[i] = schedule(t, o).world.trace
		// What different goroutines say at one moment is in no order.
		slices.Sort(traces[i])
	}
	for i := range traces[0] {
		if i >= len(traces[1]) || traces[0][i] != traces[1][i] {
			return fmt.Sprintf("line %d of %d and %d:\n%s\n%s", i, len(traces[0]), len(traces[1]), traces[0][i], traces[1][min(i, len(traces[1])-1)])
		}
	}
	return ""
}
