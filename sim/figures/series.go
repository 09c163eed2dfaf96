package figures

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/sim"
)

// Series is one line of a figure: an algorithm and how it is used.
type Series struct {
	Label     string
	Algorithm string
	Reads     float64
	Keep      float64
}

// The papers' algorithms give back at once; labels are those of the figures.
var (
	rcv       = Series{Label: "RCV", Algorithm: "rcv"}
	uniform   = Series{Label: "RCV, to any node", Algorithm: "rcv-uniform"}
	planes    = Series{Label: "Maekawa", Algorithm: "maekawa"}
	grid      = Series{Label: "Maekawa, grid", Algorithm: "maekawa-grid"}
	broadcast = Series{Label: "Broadcast", Algorithm: "suzuki-kasami"}
	ricart    = Series{Label: "Ricart", Algorithm: "ricart-agrawala"}
	ring      = Series{Label: "ring", Algorithm: "ring"}
)

// fractions are the shares of reads.
var fractions = []float64{0, 0.5, 0.9, 0.99}

// rw is what is shipped, which keeps permissions; liu is the paper's form.
func rw(reads float64) Series {
	return Series{Label: fmt.Sprintf("rw, reads %v", reads), Algorithm: "rw", Reads: reads, Keep: sim.Forever}
}

func liu(reads float64) Series {
	return Series{Label: fmt.Sprintf("Liu, reads %v", reads), Algorithm: "liu", Reads: reads}
}

// kept is an exclusive algorithm as it is shipped.
func kept(s Series) Series {
	s.Label += ", kept"
	s.Keep = sim.Forever
	return s
}

func givenBack(s Series) Series {
	s.Label += ", given back"
	s.Keep = 0
	return s
}

// paperFour are those of the paper on relative consensus voting, as they are
// shipped. It does not say which node a request goes to next, nor which quorums
// it took for Maekawa; so there are two of each.
var (
	paperFour = []Series{rcv, planes, broadcast, ricart}
	paperSix  = []Series{rcv, uniform, planes, grid, broadcast, ricart}
)

func readWrite() []Series {
	var all []Series
	for _, f := range fractions {
		all = append(all, rw(f), liu(f))
	}
	return append(all, ring)
}

// Experiment is a load, run at several points of one axis.
type Experiment struct {
	Name   string
	XLabel string
	Points []float64
	Ticks  []float64 // that the axis has labels at
	Series []Series
	Seeds  int
	config func(c *sim.Config, x float64)
}

// Names of experiments.
const (
	burst  = "burst"  // all nodes ask at the same time, over N
	light  = "light"  // one after the other, over N
	rate   = "rate"   // N=30, over λ
	reads  = "reads"  // N=30, over the share of reads
	active = "active" // N=30, one after the other, over how many of the nodes ask
)

// rateNodes is the N of the experiments over λ.
const rateNodes = 30

// Options of Make.
type Options struct {
	// Quick: fewer points, seeds and requests, for a first look.
	Quick bool
	// Seed is the first one.
	Seed uint64
	// Progress, if not nil, is called after each of Runs.
	Progress func()

	brief bool // for tests: runs are as short as they can be
}

func (o *Options) experiments() []Experiment {
	nodes := []float64{5, 10, 15, 20, 25, 30, 35, 40, 45, 50}
	rates := []float64{0.0001, 0.0002, 0.0005, 0.001, 0.0015, 0.002, 0.0025, 0.003, 0.005, 0.01, 0.02}
	shares := []float64{0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1}
	askers := []float64{1, 2, 3, 5, 10, 20, 30}
	bursts, seeds, requests, duration := 50, 3, 301, 100_000.0
	if o.Quick {
		nodes = []float64{5, 10, 30}
		rates = []float64{0.0005, 0.002, 0.01}
		shares = []float64{0, 0.5, 1}
		askers = []float64{1, 2, 30}
		bursts, seeds, requests, duration = 5, 2, 60, 5000
	}
	if o.brief {
		bursts, requests, duration = 2, 20, 2000
	}
	rounds := []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02}
	fifths := []float64{0, 0.2, 0.4, 0.6, 0.8, 1}
	paper := append(slices.Clone(paperSix), readWrite()...)
	timed := func(c *sim.Config, lambda, reads float64) {
		c.Nodes, c.Load, c.Rate, c.Duration, c.Reads = rateNodes, sim.Poisson, lambda, duration, reads
	}
	return []Experiment{
		{burst, "number of nodes", nodes, nodes, paper, bursts, func(c *sim.Config, x float64) {
			c.Nodes, c.Load = int(x), sim.Burst
		}},
		{light, "number of nodes", nodes, nodes, paper, seeds, func(c *sim.Config, x float64) {
			c.Nodes, c.Load, c.Requests = int(x), sim.Light, requests
		}},
		{rate, "arrival rate λ per node", rates, rounds, paper, seeds, func(c *sim.Config, x float64) {
			timed(c, x, c.Reads)
		}},
		{reads, "share of reads", shares, fifths, []Series{rw(0), givenBack(rw(0)), liu(0), ricart, broadcast}, seeds, func(c *sim.Config, x float64) {
			timed(c, 0.002, x)
		}},
		{active, "nodes that use the lock", askers, askers,
			[]Series{rw(0), givenBack(rw(0)), liu(0), ricart, broadcast, kept(rcv), kept(planes), kept(ring)}, seeds,
			func(c *sim.Config, x float64) {
				c.Nodes, c.Load, c.Requests, c.Active = rateNodes, sim.Light, requests, int(x)
			}},
	}
}

// Runs is how many simulations Make does.
func Runs(o Options) int {
	n := 0
	for _, e := range o.experiments() {
		n += len(e.Series) * len(e.Points) * e.Seeds
	}
	return n
}
