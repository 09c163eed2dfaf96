package member_test

import (
	"fmt"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// The enumeration goes through faults systematically where the random
// schedules throw dice: every kind, at points of a grid of times, of lengths
// and of nodes, alone and in pairs. Only latencies are left to the seed.

// placed is a fault at a place of the grid.
type placed struct {
	kind   int
	at     int64 // ms after the nodes have come together, or after the fault before it
	length int64
	node   int
}

func (p placed) String() string {
	return fmt.Sprintf("%s of node %d at %d ms for %d ms", faults[p.kind].name, p.node, p.at, p.length)
}

// grid are the places of one fault among n nodes. The lengths are below and
// above what matters: a heartbeat, a tenure, two tenures.
func grid(n int, times []int64) []placed {
	var g []placed
	for kind := range faults {
		for node := range n {
			for _, at := range times {
				for _, length := range []int64{300, 4000, 5600, 12_000} {
					g = append(g, placed{kind, at, length, node})
				}
			}
		}
	}
	return g
}

// enumerated runs one choice of faults.
func enumerated(n int, seed uint64, list []placed, tracing bool) *world {
	o := options{seed: seed, drift: 1000, params: member.Default(), fence: seed%5 == 4}
	o.params.Keep, o.params.CacheMax = 2, 3000
	w := newWorld(o)
	w.tracing = tracing
	w.together(n)
	last := w.now
	for _, p := range list {
		w.run(p.at)
		alive := w.running()
		if w.check.err != nil || len(alive) == 0 {
			break
		}
		w.logf("--- fault: %v", p)
		victim := alive[p.node%len(alive)]
		last = max(last, w.now+faults[p.kind].do(w, victim, p.length)*ms)
	}
	w.converge(last)
	return w
}

func runEnumerated(t *testing.T, n int, seed uint64, list []placed) bool {
	t.Helper()
	w := enumerated(n, seed, list, false)
	if w.check.err == nil {
		return true
	}
	fail(t, w, fmt.Sprintf("%d nodes, seed %d, %v", n, seed, list), func(tracing bool) *world { return enumerated(n, seed, list, tracing) })
	return false
}

func TestEverySingleFault(t *testing.T) {
	long.NoRace(t)
	for n := 1; n <= 3; n++ {
		g := grid(n, []int64{0, 130, 380})
		for i, p := range g {
			if !runEnumerated(t, n, uint64(i), []placed{p}) {
				return
			}
		}
		t.Logf("%d nodes: %d faults", n, len(g))
	}
}

// Pairs are many: go test takes a sample; -member.long takes all of one and two
// nodes, and every third of three.
func TestPairsOfFaults(t *testing.T) {
	long.NoRace(t)
	for _, c := range []struct {
		n, every, long int
	}{{1, 97, 1}, {2, 401, 1}, {3, 1601, 3}} {
		first, second := grid(c.n, []int64{0}), grid(c.n, []int64{50, 900, 4700})
		every := c.every
		if *flagLong {
			every = c.long
		}
		total, run := len(first)*len(second), 0
		for k := 0; k < total; k += every {
			if !runEnumerated(t, c.n, uint64(k), []placed{first[k/len(second)], second[k%len(second)]}) {
				return
			}
			run++
		}
		t.Logf("%d nodes: %d of %d pairs", c.n, run, total)
	}
}
