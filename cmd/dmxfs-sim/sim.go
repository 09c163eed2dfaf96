package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/sim"
)

// flags is one call of dmxfs-sim.
type flags struct {
	algorithms []string
	config     sim.Config
	load, keep string
	seeds      int
	json       bool
}

// maxSeeds bounds what --seeds allocates.
const maxSeeds = 10_000

func newCommand(s streams) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use: "dmxfs-sim [flags]", Short: "Simulate the algorithms, to see what a lock costs", Args: noArgs,
		Long: `Simulates a cluster that uses one lock, by the algorithms that a mount uses and
by those that the papers compare with. Times are in units that mean nothing
else: what counts is their ratio.

Measured are the messages sent for each critical section (NME), the response
time (RT: from the request to the end of the critical section), the
synchronization delay (from an exit to the next entry while somebody waits),
fairness (1: all nodes had the same share), and how many earlier requests are
overtaken at an entry. All are means over the seeds.

Algorithms:
` + describeAlgorithms(),
		Example: `  dmxfs-sim --nodes 30 --rate 0.002
  dmxfs-sim --algorithm rw,liu --reads 0.9 --rate 0.01
  dmxfs-sim --load burst --nodes 300 --seeds 1
  dmxfs-sim --load light --nodes 30 --active 2      # what kept permissions save
  dmxfs-sim figures --out figures                   # all figures of the papers`,
	}
	c.AddCommand(newFiguresCommand(s))
	fl := c.Flags()
	fl.StringSliceVar(&f.algorithms, "algorithm", nil, "simulate these (default: all)")
	fl.IntVar(&f.config.Nodes, "nodes", 30, "number of nodes")
	fl.IntVar(&f.config.Active, "active", 0, "how many of them use the lock; 0 is all")
	fl.Float64Var(&f.config.Delay, "delay", 5, "time that a message takes, Tn")
	fl.Float64Var(&f.config.CS, "cs", 10, "time that a critical section takes, Tc")
	fl.Float64Var(&f.config.Jitter, "jitter", 0, "make both vary by up to this share, 0 to 1")
	fl.StringVar(&f.load, "load", string(sim.Poisson), "poisson: requests arrive at --rate; closed: each --rate after the end of the one before; "+
		"burst: each node once, all at the same time; light: one after the other")
	fl.Float64Var(&f.config.Rate, "rate", 0.001, "requests per node and unit of time, λ (poisson, closed)")
	fl.Float64Var(&f.config.Duration, "duration", 100_000, "end of the simulation (poisson, closed)")
	fl.IntVar(&f.config.Requests, "requests", 300, "number of requests (light)")
	fl.Float64Var(&f.config.Reads, "reads", 0, "share of requests that read, 0 to 1")
	fl.StringVar(&f.keep, "keep", "forever", "time that a node keeps what it does not use, or forever; 0 gives back at once")
	fl.IntVar(&f.seeds, "seeds", 5, "number of runs, each with a seed of its own")
	fl.Uint64Var(&f.config.Seed, "seed", 1, "the first seed")
	fl.BoolVar(&f.json, "json", false, "print JSON for programs")
	c.RunE = func(c *cobra.Command, _ []string) error {
		configs, err := f.configs(c)
		if err != nil {
			return usageError{err}
		}
		rows, err := f.run(c.Context(), s, configs)
		if err != nil {
			return err
		}
		if f.json {
			return printing.JSON(s.out, rows)
		}
		return printing.Table(s.out, heads, table(rows))
	}
	return c
}

func describeAlgorithms() string {
	var b strings.Builder
	for _, a := range sim.Algorithms() {
		fmt.Fprintf(&b, "  %-16s %s\n", a.Name, a.About)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// configs is one configuration for each algorithm, checked.
func (f *flags) configs(c *cobra.Command) ([]sim.Config, error) {
	f.config.Load = sim.Load(f.load)
	f.config.Bytes = true
	for _, of := range []struct {
		flag  string
		loads []sim.Load
	}{
		{"rate", []sim.Load{sim.Poisson, sim.Closed}}, {"duration", []sim.Load{sim.Poisson, sim.Closed}}, {"requests", []sim.Load{sim.Light}},
	} {
		if c.Flags().Changed(of.flag) && slices.Contains(sim.Loads, f.config.Load) && !slices.Contains(of.loads, f.config.Load) {
			return nil, fmt.Errorf("--%s means nothing with --load %s", of.flag, f.load)
		}
	}
	var err error
	if f.config.Keep, err = parseKeep(f.keep); err != nil {
		return nil, err
	}
	if f.seeds < 1 || f.seeds > maxSeeds {
		return nil, fmt.Errorf("--seeds %d: must be 1 to %d", f.seeds, maxSeeds)
	}
	algorithms := sim.Algorithms()
	if c.Flags().Changed("algorithm") {
		algorithms = nil
		for _, name := range f.algorithms {
			a, err := sim.Find(name)
			if err != nil {
				return nil, fmt.Errorf("--algorithm: %w", err)
			}
			algorithms = append(algorithms, a)
		}
		if len(algorithms) == 0 {
			return nil, errors.New("--algorithm: names none")
		}
	}
	var all []sim.Config
	for _, a := range algorithms {
		cfg := f.config
		cfg.Algorithm = a
		if err := cfg.Check(); err != nil {
			return nil, fmt.Errorf("--%w", err)
		}
		all = append(all, cfg)
	}
	return all, nil
}

func parseKeep(s string) (float64, error) {
	if s == "forever" {
		return sim.Forever, nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, fmt.Errorf("--keep %q: must be a time or forever", s)
	}
	return v, nil
}

// row is the results of one configuration, as they are printed.
type row struct {
	Algorithm string      `json:"algorithm"`
	Nodes     int         `json:"nodes"`
	Active    int         `json:"active"`
	Load      sim.Load    `json:"load"`
	Rate      *float64    `json:"rate,omitempty"`
	Reads     float64     `json:"reads"`
	Delay     float64     `json:"delay"`
	CSTime    float64     `json:"cs_time"`
	Jitter    float64     `json:"jitter"`
	Keep      json.Number `json:"keep,omitempty"` // left out: forever
	Seed      uint64      `json:"seed"`
	sim.Summary
}

func (f *flags) run(ctx context.Context, s streams, configs []sim.Config) ([]row, error) {
	var runs []sim.Config
	for _, c := range configs {
		runs = append(runs, c.Seeds(f.seeds)...)
	}
	step, stop := progress(s.err, "simulating", len(runs))
	results, err := sim.Batch(ctx, runs, step)
	stop()
	if err != nil {
		return nil, err
	}
	var rows []row
	for i, c := range configs {
		r := row{
			Algorithm: c.Algorithm.Name, Nodes: c.Nodes, Active: c.Active, Load: c.Load, Reads: c.Reads,
			Delay: c.Delay, CSTime: c.CS, Jitter: c.Jitter, Seed: c.Seed,
			Summary: sim.Summarize(results[i*f.seeds : (i+1)*f.seeds]),
		}
		if c.Active == 0 {
			r.Active = c.Nodes
		}
		if c.Load == sim.Poisson || c.Load == sim.Closed {
			r.Rate = &c.Rate
		}
		if c.Keep != sim.Forever {
			r.Keep = json.Number(strconv.FormatFloat(c.Keep, 'g', -1, 64))
		}
		rows = append(rows, r)
	}
	return rows, nil
}

var heads = []string{"ALGORITHM", "CS", "NME", "RT", "RT 99%", "RT MAX", "RT READ", "RT WRITE", "SYNC DELAY", "FAIRNESS", "OVERTAKEN", "BYTES"}

func table(rows []row) [][]string {
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{
			r.Algorithm, strconv.Itoa(r.CS), spread(r.NME), spread(r.RT), fixed(r.RTP99, 1), fixed(r.RTMax, 1),
			fixed(r.RTRead, 1), fixed(r.RTWrite, 1), fixed(r.Sync, 2), fixed(r.Fairness, 3), fixed(r.Overtaken, 2), fixed(r.Bytes, 0),
		})
	}
	return cells
}

// fixed is a measure with so many decimals, or - if there was none.
func fixed(s sim.Stat, decimals int) string {
	if s.N == 0 {
		return "-"
	}
	return strconv.FormatFloat(s.Mean, 'f', decimals, 64)
}

// spread is a measure with its standard deviation over the seeds, if several.
func spread(s sim.Stat) string {
	if s.N < 2 {
		return fixed(s, 2)
	}
	return fixed(s, 2) + " ±" + strconv.FormatFloat(s.SD, 'f', 2, 64)
}
