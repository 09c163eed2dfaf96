package figures

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/dmxfs/dmxfs/sim"
)

// markdown is the claims for the documentation, and the main figures beside
// each other.
func (d *Data) markdown(claims []Claim) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Tn = %g, Tc = %g; %d runs. \"Said\" is what the paper says.\n", tn, tc, d.runs)
	if d.quick {
		fmt.Fprintln(&b, "Runs were few and short (--quick): verdicts may be wrong.")
	}
	fmt.Fprintln(&b)
	fmt.Fprintln(&b, "| Source | Claim | Measured | Holds | Rule of the verdict |\n|---|---|---|---|---|")
	for _, c := range claims {
		cells := []string{c.Source, c.Text, c.Measured, "**" + string(c.Verdict) + "**", c.Rule}
		for i := range cells {
			cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	for _, x := range []float64{d.first(rate), d.last(rate)} {
		fmt.Fprintf(&b, "\nN = %d, λ = %s:\n\n", rateNodes, short(x))
		fmt.Fprintln(&b, "| | NME | RT | RT of reads | RT of writes | 99 % of RT | sync delay | fairness | overtaken | bytes per CS |\n|---|---|---|---|---|---|---|---|---|---|")
		for _, e := range d.Experiments {
			if e.Name != rate {
				continue
			}
			for _, s := range e.Series {
				v := d.At(rate, s, x)
				fmt.Fprintf(&b, "| %s", s.Label)
				for _, m := range []sim.Stat{v.NME, v.RT, v.RTRead, v.RTWrite, v.RTP99, v.Sync, v.Fairness, v.Overtaken, v.Bytes} {
					if m.N == 0 {
						fmt.Fprint(&b, " | -")
					} else {
						fmt.Fprintf(&b, " | %s", short(m.Mean))
					}
				}
				fmt.Fprintln(&b, " |")
			}
		}
	}
	return b.Bytes()
}

func claimsCSV(claims []Claim) []byte {
	rows := [][]string{{"source", "claim", "measured", "holds", "rule"}}
	for _, c := range claims {
		rows = append(rows, []string{c.Source, c.Text, c.Measured, string(c.Verdict), c.Rule})
	}
	return table(rows)
}
