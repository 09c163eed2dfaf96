package figures

import (
	"context"
	"math"

	"github.com/dmxfs/dmxfs/sim"
)

// Data is what was measured.
type Data struct {
	Experiments []Experiment
	points      map[point]sim.Summary
	runs        int
	quick       bool
}

type point struct {
	experiment, label string
	x                 float64
}

// Make runs all experiments.
func Make(ctx context.Context, o Options) (*Data, error) {
	d := &Data{points: make(map[point]sim.Summary), quick: o.Quick}
	var runs []sim.Config
	type part struct {
		point
		from, to int
	}
	var parts []part
	for _, e := range o.experiments() {
		d.Experiments = append(d.Experiments, e)
		for _, s := range e.Series {
			a, err := sim.Find(s.Algorithm)
			if err != nil {
				return nil, err
			}
			for _, x := range e.Points {
				c := sim.Config{Algorithm: a, Delay: 5, CS: 10, Reads: s.Reads, Keep: s.Keep, Seed: o.Seed, Bytes: true}
				e.config(&c, x)
				from := len(runs)
				runs = append(runs, c.Seeds(e.Seeds)...)
				parts = append(parts, part{point{e.Name, s.Label, x}, from, len(runs)})
			}
		}
	}
	results, err := sim.Batch(ctx, runs, o.Progress)
	if err != nil {
		return nil, err
	}
	d.runs = len(runs)
	for _, p := range parts {
		d.points[p.point] = sim.Summarize(results[p.from:p.to])
	}
	return d, nil
}

// At is what was measured of a series at a point.
func (d *Data) At(experiment string, s Series, x float64) sim.Summary {
	v, ok := d.points[point{experiment, s.Label, x}]
	if !ok {
		panic("figures: " + experiment + " has no " + s.Label)
	}
	return v
}

// over are the points of an experiment.
func (d *Data) over(experiment string) []float64 {
	for _, e := range d.Experiments {
		if e.Name == experiment {
			return e.Points
		}
	}
	panic("figures: no experiment " + experiment)
}

// A measure is one of those of a summary.
type measure struct {
	name, label string
	of          func(sim.Summary) sim.Stat
}

var (
	nme = measure{"nme", "messages per critical section (NME)", func(s sim.Summary) sim.Stat { return s.NME }}
	rt  = measure{"rt", "response time (RT)", func(s sim.Summary) sim.Stat { return s.RT }}
	syn = measure{"sync", "synchronization delay", func(s sim.Summary) sim.Stat { return s.Sync }}
)

// value is a mean, or NaN if there was none.
func (d *Data) value(m measure, experiment string, s Series, x float64) float64 {
	if v := m.of(d.At(experiment, s, x)); v.N > 0 {
		return v.Mean
	}
	return math.NaN()
}
