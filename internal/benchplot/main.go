package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"gonum.org/v1/plot/vg"
)

func main() {
	out := flag.String("o", "everyday.svg", "the plot, .svg or .png")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "benchplot:", err)
		os.Exit(1)
	}
}

// run draws what is in files, or on standard input.
func run(out string, files []string) error {
	in := io.Reader(os.Stdin)
	if len(files) > 0 {
		var all []io.Reader
		for _, name := range files {
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			all = append(all, f)
		}
		in = io.MultiReader(all...)
	}
	results, err := readResults(in)
	if err != nil {
		return err
	}
	if len(results) == 0 {
		return errors.New("there is no result of a benchmark in what was read: it is what go test -bench prints")
	}
	p, err := figure(results)
	if err != nil {
		return err
	}
	height := vg.Length(len(results)+4) * vg.Points(20)
	return p.Save(18*vg.Centimeter, height, out)
}
