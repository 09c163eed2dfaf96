package engine

import (
	"flag"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

var (
	delegationSeeds = flag.Int("engine.delegations", long.OrPure(6, 60), "number of random runs of each kind of TestDelegationsAtRandom")
	delegationSeed  = flag.Uint64("engine.delegation", 0, "run TestDelegationsAtRandom with this seed only")
)

// randomFiles is one run.
func randomFiles(t *testing.T, seed uint64, kind filesKind, twist func([]byte) []byte) *manyFiles {
	f := &manyFiles{seed: seed, files: map[locks.Key]*testFile{}, filesKind: kind}
	defer func(a, b, c int) { frameSize, exceptionsAtOnce, maxAtOnce = a, b, c }(frameSize, exceptionsAtOnce, maxAtOnce)
	if frameSize = 8; kind.parts { // two keys
		exceptionsAtOnce, maxAtOnce = 2, 1
	}
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		f.connect(t, rnd)
		f.twist = twist
		f.run(rnd)
	})
	return f
}

// connect makes the nodes.
func (f *manyFiles) connect(t *testing.T, rnd *rand.Rand) {
	f.ids = []locks.NodeID{"n0", "n1", "n2"}
	if f.flocks && eagerly(f.seed) != nil {
		f.ids = f.ids[:2] // only two ask back what they give away
	}
	f.net = newTuned(t, len(f.ids), func(o *Options) { f.options(o, rnd) })
	f.delay = time.Duration(1+rnd.IntN(3000)) * time.Microsecond
	f.jitter = lateAtTimes(rand.New(rand.NewPCG(f.seed, 100)))
	for _, id := range f.ids {
		n := f.nodes[id]
		n.Engine.entries.clean.limit = 1 + rnd.IntN(20)
		if f.parts {
			n.Engine.mu.rest = f.rest(rand.New(rand.NewPCG(f.seed, 200)))
		}
		f.serve(n)
	}
}

// options are those of a node.
func (f *manyFiles) options(o *Options, rnd *rand.Rand) {
	o.Log = slog.New((*noErrors)(f))
	o.Uniform = func() string { return "rw" }
	o.Delegations = DelegationLimits{
		After: 1 + rnd.IntN(3), Quiet: time.Duration(1+rnd.IntN(300)*rnd.IntN(100)) * time.Microsecond,
		Unused: 300 * time.Millisecond, Pause: time.Duration(1+rnd.IntN(40)) * time.Millisecond, MaxPause: 100 * time.Millisecond,
	}
	o.Expire = time.Duration(5+rnd.IntN(100)) * time.Millisecond
	if tune := eagerly(f.seed); tune != nil {
		tune(o)
	}
}

// lateAtTimes is what frames take longer, in every other run: mostly little.
func lateAtTimes(rnd *rand.Rand) func() time.Duration {
	if rnd.IntN(2) != 0 {
		return nil
	}
	return func() time.Duration {
		if rnd.IntN(20) > 0 {
			return time.Duration(rnd.IntN(1000)) * time.Microsecond
		}
		return time.Duration(rnd.IntN(150)) * time.Millisecond
	}
}

// serve has f be the files of n.
func (f *manyFiles) serve(n *node) {
	n.onFlush = func(k locks.Key) error { return f.flush(n, k) }
	n.refresh = func(k locks.Key) error {
		if f.hard {
			time.Sleep(time.Duration(n.Moment()%3) * time.Millisecond)
		}
		return f.forget(n, k)
	}
	if f.hard {
		n.onClean = func(k locks.Key) bool { return f.clean(n, k) }
	}
}

// run has the programs run to their end, and disturbs them.
func (f *manyFiles) run(rnd *rand.Rand) {
	done := f.start()
	next := time.Duration(rnd.IntN(int(3 * time.Second)))
	for began := time.Now(); ; {
		select {
		case <-done:
			f.ended()
			return
		case <-time.After(500 * time.Microsecond):
			f.look()
		}
		if f.hard {
			f.trouble(rnd)
		}
		if time.Since(began) > next && rnd.IntN(2) == 0 {
			f.view(f.ids...)
			next += time.Duration(rnd.IntN(int(3 * time.Second)))
		}
		if time.Since(began) > time.Minute {
			f.mu.Lock()
			f.fail("programs wait for ever")
			f.mu.Unlock()
			return
		}
	}
}

// start starts the programs; done is closed when all have ended.
func (f *manyFiles) start() (done chan struct{}) {
	var wg sync.WaitGroup
	programs := 6
	if f.flocks {
		programs = 12
	}
	for i := range programs {
		wg.Add(1)
		go f.program(f.nodes[f.ids[i%len(f.ids)]], 1+i, 40, &wg)
	}
	done = make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	return done
}

// trouble suspends a node now and then, or expels one.
func (f *manyFiles) trouble(rnd *rand.Rand) {
	if rnd.IntN(400) == 0 {
		n := f.nodes[f.ids[rnd.IntN(len(f.ids))]]
		if !n.dead.Swap(true) {
			time.AfterFunc(time.Duration(rnd.IntN(60))*time.Millisecond, func() {
				n.dead.Store(false)
				n.Resume()
			})
		}
	}
	if rnd.IntN(2500) == 0 {
		f.expel(rnd)
	}
}

// expel drops one of the nodes, which comes back.
func (f *manyFiles) expel(rnd *rand.Rand) {
	ids := f.ids
	i := rnd.IntN(len(ids))
	n := f.nodes[ids[i]]
	rest := append(append([]locks.NodeID{}, ids[:i]...), ids[i+1:]...)
	n.Freeze()
	n.Engine.Expelled("test")
	f.mu.Lock()
	for _, x := range f.files {
		for r, at := range x.holders {
			if at == n.id {
				delete(x.holders, r)
			}
		}
		if _, ok := x.unwritten[n.id]; ok { // lost
			delete(x.unwritten, n.id)
			x.truth++
			x.stored = x.truth
		}
		delete(x.cached, n.id)
	}
	f.mu.Unlock()
	f.view(rest...)
	time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond)
	f.view(ids...)
}

// ended looks at what the programs have left, and counts.
func (f *manyFiles) ended() {
	f.look()
	time.Sleep(2 * time.Second)
	for _, n := range f.nodes {
		f.idle(n)
		n.mu.Lock()
		for _, ev := range n.events {
			if ev.Step == Granted && ev.Mode == locks.Write && ev.Messages == 0 {
				f.silent++
			}
		}
		n.mu.Unlock()
	}
}

// TestDelegationsAtRandom has programs of three nodes open files at random, old
// ones and new ones, some of them all the time and some now and then. No two
// have what conflicts, and each reads what was written last.
func TestDelegationsAtRandom(t *testing.T) {
	for name, kind := range map[string]filesKind{"plain": {}, "hard": {hard: true}, "parts": {parts: true}, "hard, in parts": {hard: true, parts: true}, "flocks": {hard: true, flocks: true}} {
		t.Run(name, func(t *testing.T) { runRandomFiles(t, kind) })
	}
}

func runRandomFiles(t *testing.T, kind filesKind) {
	first, last := uint64(1), uint64(*delegationSeeds)
	if kind.hard && !kind.flocks {
		last = (last + 1) / 2
	}
	if kind.parts {
		last = (last + 3) / 4
	}
	if *delegationSeed != 0 {
		first, last = *delegationSeed, *delegationSeed
	}
	var grants, silent, loaned, asking int
	var rests int64
	for s := first; s <= last; s++ {
		f := randomFiles(t, s, kind, nil)
		if f.err != nil || t.Failed() {
			t.Fatalf("%v\nto run this again: go test ./locks/engine -run %s -engine.delegation %d", f.err, t.Name(), s)
		}
		grants, silent, loaned, asking, rests = grants+f.grants, silent+f.silent, loaned+f.loaned, asking+f.asking, rests+f.rests.Load()
	}
	t.Logf("%d grants, %d of them to write without a message; %d moments with a delegate, %d with a guess; in parts: %d", grants, silent, loaned, asking, rests)
	if !kind.hard && *delegationSeed == 0 && loaned == 0 {
		t.Error("nothing was ever delegated")
	}
	if kind.parts && rests == 0 {
		t.Error("nothing was done in parts")
	}
	if kind.flocks && *delegationSeed == 0 && asking == 0 {
		t.Error("nothing was ever asked back")
	}
}
