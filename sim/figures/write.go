package figures

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/dmxfs/dmxfs/sim"
)

// Write puts all into a directory, which is made if need be: each figure as
// NAME.svg, NAME.png and NAME.csv, all that was measured as results.csv, and
// the claims as claims.md and claims.csv. It returns the names.
func (d *Data) Write(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	var names []string
	put := func(name string, content []byte, err error) error {
		if err != nil {
			return err
		}
		names = append(names, name)
		return os.WriteFile(filepath.Join(dir, name), content, 0o666)
	}
	for _, f := range Figures() {
		svg, err := d.SVG(f)
		if err := put(f.Name+".svg", svg, err); err != nil {
			return nil, err
		}
		png, err := d.PNG(f)
		if err := put(f.Name+".png", png, err); err != nil {
			return nil, err
		}
		if err := put(f.Name+".csv", d.CSV(f), nil); err != nil {
			return nil, err
		}
	}
	claims := d.Claims()
	for _, f := range []struct {
		name    string
		content []byte
	}{{"results.csv", d.results()}, {"claims.md", d.markdown(claims)}, {"claims.csv", claimsCSV(claims)}} {
		if err := put(f.name, f.content, nil); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// results is everything, a line for each point.
func (d *Data) results() []byte {
	rows := [][]string{{"experiment", "series", "algorithm", "reads", "keep", "x", "runs", "cs", "nme", "nme_sd", "rt", "rt_sd",
		"rt_read", "rt_write", "rt_p99", "rt_max", "sync_delay", "fairness", "overtaken", "bytes"}}
	for _, e := range d.Experiments {
		for _, s := range e.Series {
			for _, x := range e.Points {
				v := d.At(e.Name, s, x)
				keep := number(s.Keep)
				if s.Keep == sim.Forever {
					keep = "forever"
				}
				row := []string{e.Name, s.Label, s.Algorithm, number(s.Reads), keep, number(x), fmt.Sprint(v.Runs), fmt.Sprint(v.CS)}
				for _, m := range []sim.Stat{v.NME, v.RT} {
					row = append(row, optional(m), number(m.SD))
				}
				for _, m := range []sim.Stat{v.RTRead, v.RTWrite, v.RTP99, v.RTMax, v.Sync, v.Fairness, v.Overtaken, v.Bytes} {
					row = append(row, optional(m))
				}
				rows = append(rows, row)
			}
		}
	}
	return table(rows)
}

func optional(s sim.Stat) string {
	if s.N == 0 {
		return ""
	}
	return number(s.Mean)
}
