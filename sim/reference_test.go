package sim

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

var full = flag.Bool("sim.full", false, "compare all reference figures, not only some of each kind")

// reference is a row of testdata/reference.csv.
type reference struct {
	algorithm, experiment string
	nodes                 int
	lambda, reads         float64
	nme, rt, sync         float64 // NaN where there is none
}

func references(t *testing.T) []reference {
	t.Helper()
	f, err := os.Open("testdata/reference.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	number := func(s string) float64 {
		if s == "" {
			return nothing
		}
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var all []reference
	for _, row := range rows[1:] {
		all = append(all, reference{
			algorithm: row[0], experiment: row[1], nodes: int(number(row[2])),
			lambda: number(row[3]), reads: number(row[4]), nme: number(row[5]), rt: number(row[6]), sync: number(row[7]),
		})
	}
	return all
}

// config is the run of a reference figure, and how many seeds it takes here.
func (r *reference) config(a Algorithm) (Config, int) {
	c := Config{Algorithm: a, Nodes: r.nodes, Delay: 5, CS: 10, Reads: r.reads, Requests: 301, Duration: 100_000, Rate: r.lambda}
	switch r.experiment {
	case "burst":
		c.Load = Burst
		if *full {
			return c, 50
		}
		return c, 20
	case "light":
		c.Load = Light
	case "poisson":
		c.Load = Poisson
	default:
		c.Load = Closed
	}
	if *full {
		return c, 5
	}
	return c, 2
}

// counterparts are the reference implementations of what is simulated here.
var counterparts = map[string]string{
	"rcv":               "rcv-uniform",
	"rcv-unknown-first": "rcv",
	"maekawa-plane":     "maekawa",
	"maekawa-grid":      "maekawa-grid",
	"ring":              "ring",
	"suzuki-kasami":     "suzuki-kasami",
	"ricart-agrawala":   "ricart-agrawala",
	"liu":               "liu",
}

// TestReference compares with independent implementations: within 10 % of the
// reference, or within what chance does where few write.
func TestReference(t *testing.T) {
	long.NoRace(t)
	compared := 0
	for _, ref := range references(t) {
		name, ok := counterparts[ref.algorithm]
		if !ok || !*full && !sampled(&ref) {
			continue
		}
		a, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		c, seeds := ref.config(a)
		var runs []*Result
		for seed := range uint64(seeds) {
			c.Seed = seed + 1
			runs = append(runs, run(t, c))
		}
		s := Summarize(runs)
		what := fmt.Sprintf("%s, %s, N=%d, λ=%v, reads %v", ref.algorithm, ref.experiment, ref.nodes, ref.lambda, ref.reads)
		few := ref.few(s.CS)
		near(t, what, "NME", s.NME, ref.nme, few)
		near(t, what, "RT", s.RT, ref.rt, 0)
		// Where nearly all read and nobody is there, it hardly comes up.
		if !math.IsNaN(ref.sync) && s.Sync.N > 0 && few < 0.2 {
			near(t, what, "synchronization delay", s.Sync, ref.sync, 0)
		}
		compared++
	}
	t.Logf("%d figures compared", compared)
	if compared < 50 {
		t.Errorf("only %d figures compared", compared)
	}
}

// sampled: some of each kind, so that an ordinary test run is short.
func sampled(r *reference) bool {
	switch r.experiment {
	case "burst", "light":
		return r.nodes == 5 || r.nodes == 30
	case "poisson":
		return r.lambda == 0.0005
	}
	return r.lambda == 0.001
}

// few is the chance, relative to NME, that comes from the number of writes, if
// reads cost nothing: three standard errors of both sides.
func (r *reference) few(cs int) float64 {
	if r.reads == 0 {
		return 0
	}
	return 3 * math.Sqrt(2/(float64(cs)*(1-r.reads)))
}

// near allows 10 %, three standard errors of our own runs and as much again for
// those of the reference, and what else there is of chance.
func near(t *testing.T, what, measure string, got Stat, want, few float64) {
	t.Helper()
	chance := 3*math.Sqrt2*got.SD/math.Sqrt(float64(got.N)) + few*want
	if math.Abs(got.Mean-want) > 0.1*want+chance {
		t.Errorf("%s: %s %.2f (sd %.2f), the reference has %.2f", what, measure, got.Mean, got.SD, want)
	}
}
