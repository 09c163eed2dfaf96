package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// result is what one benchmark has printed.
type result struct {
	name   string             // of the work: what comes after the last slash
	values map[string]float64 // by unit
}

// readResults reads the results of go test -bench, and leaves out what is none. The last one
// of a name counts.
func readResults(r io.Reader) ([]result, error) {
	var all []result
	at := map[string]int{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		// Benchmark…-PROCESSORS N VALUE UNIT VALUE UNIT …
		if len(f) < 4 || len(f)%2 != 0 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		if _, err := strconv.ParseUint(f[1], 10, 64); err != nil {
			continue
		}
		x := result{f[0][strings.LastIndexByte(f[0], '/')+1:], map[string]float64{}}
		if i := strings.LastIndexByte(x.name, '-'); i > 0 {
			if _, err := strconv.ParseUint(x.name[i+1:], 10, 32); err == nil {
				x.name = x.name[:i]
			}
		}
		for i := 2; i < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s has the value %q", f[0], f[i])
			}
			x.values[f[i+1]] = v
		}
		if i, ok := at[x.name]; ok {
			all[i] = x
			continue
		}
		at[x.name] = len(all)
		all = append(all, x)
	}
	return all, lines.Err()
}

// series are the marks of a row, in the order of the legend. Each is times what the same
// takes on the storage below; false if that was not measured.
var series = []struct {
	label string
	of    func(v map[string]float64) (float64, bool)
}{
	{"go-fuse's loopback", func(v map[string]float64) (float64, bool) {
		x, y := v["x-storage"], v["x-loopback"]
		return x / y, x > 0 && y > 0
	}},
	{"dmxfs", value("x-storage")},
	{"dmxfs --cache-time 10s", value("x-cached")},
	{"the same, while another host changes things", value("x-cached-changed")},
}

func value(unit string) func(v map[string]float64) (float64, bool) {
	return func(v map[string]float64) (float64, bool) {
		x := v[unit]
		return x, x > 0
	}
}
