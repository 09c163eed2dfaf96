package figures

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/sim"
)

// invented is data in which everything is as said by of: what is not asked for
// here is 1.
func invented(of func(m string, experiment string, s Series, x float64) float64) *Data {
	d := &Data{points: make(map[point]sim.Summary)}
	o := Options{}
	for _, e := range o.experiments() {
		d.Experiments = append(d.Experiments, e)
		for _, s := range e.Series {
			for _, x := range e.Points {
				stat := func(m measure) sim.Stat { return sim.Stat{Mean: of(m.name, e.Name, s, x), N: 1} }
				d.points[point{e.Name, s.Label, x}] = sim.Summary{Runs: 1, CS: 100, Messages: int(math.Round(100 * of(nme.name, e.Name, s, x))), NME: stat(nme), RT: stat(rt), Sync: stat(syn)}
			}
		}
	}
	return d
}

// find is the claim with that text.
func find(t *testing.T, d *Data, text string) Claim {
	t.Helper()
	for _, c := range d.Claims() {
		if strings.Contains(c.Text, text) {
			return c
		}
	}
	t.Fatalf("no claim %q", text)
	return Claim{}
}

// inWorld is measurements, and the verdict that a claim gets of them.
type inWorld struct {
	text  string // of the claim
	world world
	want  Verdict
}

type world = func(m, experiment string, s Series, x float64) float64

// only is a world in which one series is as told, and all others are 100.
func only(label string, m measure, of func(x float64) float64) world {
	return func(name, _ string, s Series, x float64) float64 {
		if s.Label == label && name == m.name {
			return of(x)
		}
		return 100
	}
}

func flat(v float64) func(float64) float64 { return func(float64) float64 { return v } }

// ofRCV are claims of the paper on RCV.
var ofRCV = []inWorld{
	{"fewest messages of the four (figure 4); requests go where", only("RCV", nme, flat(99)), holds},
	{"fewest messages of the four (figure 4); requests go where", only("RCV", nme, flat(100)), fails},
	{"fewest messages of the four (figure 4); requests go to any", only("Broadcast", nme, func(x float64) float64 { return x }), fails},
	{"fewest messages of the four (figure 4); requests go where", only("RCV", nme, func(x float64) float64 { return 2 * x }), partly},
	{"fewest messages of the four (figure 4); requests go to any", only("RCV, to any node", nme, flat(99)), holds},
	{"similar to that of the other three", only("RCV", rt, flat(120)), holds},
	{"similar to that of the other three", only("RCV", rt, flat(130)), fails},
	{"NME of RCV falls", only("RCV", nme, func(x float64) float64 { return 20 - 100*x }), holds},
	{"NME of RCV falls", only("RCV", nme, func(x float64) float64 { return 20 + 100*x }), fails},
	{"NME of RCV falls", only("RCV", nme, flat(20)), fails},
	{"NME of RCV falls as λ rises (figure 6); requests go to any", only("RCV, to any node", nme, func(x float64) float64 { return 20 - 100*x }), holds},
	{"NME of RCV falls", only("RCV", nme, func(x float64) float64 { return 20 - math.Abs(x-0.003)*1000 }), partly},
	{"than Maekawa in NME (figure 6); quorums of planes", only("Maekawa", nme, func(x float64) float64 { return 100 + 1000*x }), holds},
	{"than Maekawa in NME (figure 6); quorums of planes", only("Maekawa", nme, func(x float64) float64 { return 90 + 100*x }), partly},
	{"than Maekawa in NME (figure 6); quorums of a grid", only("Maekawa, grid", nme, func(x float64) float64 { return 90 - 100*x }), fails},
	{"little higher than that of Broadcast and Ricart", only("RCV", rt, flat(125)), holds},
	{"little higher than that of Broadcast and Ricart", only("Ricart", rt, flat(70)), fails},
	{"much lower than Maekawa's (figure 7); quorums of a grid", only("Maekawa, grid", rt, flat(126)), holds},
	{"much lower than Maekawa's (figure 7); quorums of a grid", only("Maekawa, grid", rt, flat(101)), fails},
	{"Light load: [N/2] + 2", only("RCV", nme, func(n float64) float64 { return math.Floor(n/2) + 3 }), holds},
	{"Light load: [N/2] + 2", only("RCV", nme, flat(10)), partly},
	{"Light load: [N/2] + 2", only("RCV", nme, flat(60)), fails},
	{"RT is N (Tn + Tc)", only("RCV", rt, flat(440)), holds},
	{"RT is N (Tn + Tc)", only("RCV", rt, flat(400)), fails},
	{"The synchronization delay is T (", only("RCV", syn, flat(5.4)), holds},
	{"The synchronization delay is T (", only("RCV", syn, func(x float64) float64 { return 5 + 1/(1e4*x) }), partly},
	{"The synchronization delay is T (", only("RCV", syn, flat(10)), fails},
	{"delay of Maekawa is 2T (section 2); quorums of a grid", only("Maekawa, grid", syn, flat(10)), holds},
}

// ofOthers are those of the other papers, and ours.
var ofOthers = []inWorld{
	{"2(N-1) messages, always", func(_, e string, _ Series, x float64) float64 {
		if e == rate {
			return 58
		}
		return 2 * (x - 1)
	}, holds},
	{"2(N-1) messages, always", func(_, _ string, _ Series, x float64) float64 { return 58 }, partly},
	{"N messages, or none", only("Broadcast", nme, flat(30)), fails}, // not at N = 5
	{"N messages, or none", only("Broadcast", nme, func(x float64) float64 {
		if x < 1 {
			return 30
		}
		return x
	}), holds},
	{"answer in 2T", func(string, string, Series, float64) float64 { return 21 }, holds},
	{"answer in 2T", func(string, string, Series, float64) float64 { return 23 }, fails},
	{"An R-lock costs no message", only("Liu, reads 0", nme, flat(0)), holds},
	{"An R-lock costs no message", only("Liu, reads 0", nme, flat(1)), fails},
	{"A write that is alone", only("Liu, reads 0", nme, func(n float64) float64 { return 2 * (n - 1) }), holds},
	{"A write that is alone", only("Liu, reads 0", nme, func(n float64) float64 { return 3 * (n - 1) }), fails},
	{"all concurrent cost N", only("Liu, reads 0", nme, func(n float64) float64 { return n }), holds},
	{"N-1 messages", only("ring", nme, func(n float64) float64 { return n }), fails},
	{"one node repeats", func(string, string, Series, float64) float64 { return 0.58 }, holds},
	{"one node repeats", func(string, string, Series, float64) float64 { return 0.59 }, fails},
	{"two nodes that use a lock", func(string, string, Series, float64) float64 { return 2 }, holds},
	{"two nodes that use a lock", func(string, string, Series, float64) float64 { return 4 }, fails},
	{"never dearer than Ricart-Agrawala", func(_, e string, _ Series, x float64) float64 {
		if e == light && x == 30 {
			return 29
		}
		return 1
	}, holds},
	{"never dearer than Ricart-Agrawala", func(string, string, Series, float64) float64 { return 1 }, partly},
	{"cheaper than the paper's form", func(_, _ string, s Series, _ float64) float64 {
		if s.Algorithm == "rw" {
			return 1
		}
		return 2
	}, holds},
	{"cheaper than the paper's form", func(string, string, Series, float64) float64 { return 1 }, fails},
}

// A verdict follows what was measured: here it is made up, once so that the
// claim holds, once so that it does not, and once in between.
func TestVerdicts(t *testing.T) {
	for _, c := range append(slices.Clone(ofRCV), ofOthers...) {
		if got := find(t, invented(c.world), c.text); got.Verdict != c.want {
			t.Errorf("%s: %s, measured %q, want %s", c.text, got.Verdict, got.Measured, c.want)
		}
	}
}
