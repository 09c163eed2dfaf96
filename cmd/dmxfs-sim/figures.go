package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/sim/figures"
)

func newFiguresCommand(s streams) *cobra.Command {
	var out string
	var o figures.Options
	c := &cobra.Command{
		Use: "figures --out DIR", Short: "Make the figures of the papers, and see which of their claims hold", Args: noArgs,
		Long: `Simulates what the papers have figures of, and what they have none of: the
read/write algorithms with readers, and what is gained by keeping permissions.
Writes each figure as SVG, PNG and CSV, all figures as results.csv, and what was
measured for each claim of the papers as claims.md and claims.csv. Files of the
same names are replaced. The claims are printed, too.`,
	}
	c.Flags().StringVar(&out, "out", "", "directory for the files; it is made if need be")
	c.Flags().BoolVar(&o.Quick, "quick", false, "fewer points and shorter runs, for a first look")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "the first seed")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if out == "" {
			return usageError{errors.New("--out is missing: in which directory shall the figures go?")}
		}
		if err := os.MkdirAll(out, 0o777); err != nil { // now, not after the work
			return err
		}
		// The heap is small and nearly all of it garbage: a sixth of the time.
		defer debug.SetGCPercent(debug.SetGCPercent(800))
		step, stop := progress(s.err, "simulating", figures.Runs(o))
		o.Progress = step
		d, err := figures.Make(c.Context(), o)
		stop()
		if err != nil {
			return err
		}
		files, err := d.Write(out)
		if err != nil {
			return err
		}
		for _, c := range d.Claims() {
			if _, err := fmt.Fprintf(s.out, "%-7s %s: %s\n        %s\n", c.Verdict, c.Source, c.Text, c.Measured); err != nil {
				return err
			}
		}
		if o.Quick {
			fmt.Fprintln(s.err, "dmxfs-sim: with --quick, runs are few and short: verdicts may be wrong")
		}
		_, err = fmt.Fprintf(s.out, "\n%d files in %s\n", len(files), strings.TrimSuffix(out, "/"))
		return err
	}
	return c
}
