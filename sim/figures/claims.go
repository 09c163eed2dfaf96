package figures

import (
	"fmt"
	"math"
	"strings"
)

// Verdict says whether a claim holds.
type Verdict string

const (
	holds  Verdict = "yes"
	partly Verdict = "partly"
	fails  Verdict = "no"
)

// Claim is what a paper, or this project, says, and what was measured.
type Claim struct {
	Source   string
	Text     string // in our words
	Rule     string // by which the verdict is found
	Measured string
	Verdict  Verdict
}

// asserted is a claim that is still to be measured.
type asserted struct {
	source, text, rule string
	check              func(d *Data) (measured string, v Verdict)
}

// Claims measures all of them.
func (d *Data) Claims() []Claim {
	var all []Claim
	for _, group := range [][]asserted{votingClaims, quorumClaims, otherClaims, ownClaims} {
		for _, a := range group {
			measured, v := a.check(d)
			all = append(all, Claim{a.source, a.text, a.rule, measured, v})
		}
	}
	return all
}

// Sources of claims.
const (
	cao     = "RCV (Cao et al.)"
	paperM  = "Maekawa"
	paperRA = "Ricart-Agrawala"
	paperSK = "Suzuki-Kasami"
	paperL  = "Read/write (Liu et al.)"
	paperT  = "Ring (Thiare)"
	ours    = "dmxfs"
)

// Tn and Tc of all experiments.
const (
	tn = 5.0
	tc = 10.0
)

// all is yes, some is partly.
func verdict(good, of int) Verdict {
	switch good {
	case of:
		return holds
	case 0:
		return fails
	}
	return partly
}

// at says for which of an axis something is so.
func at(axis string, good, points []float64) string {
	switch len(good) {
	case 0:
		return fmt.Sprintf("at no %s", axis)
	case len(points):
		return fmt.Sprintf("at every %s", axis)
	}
	return fmt.Sprintf("at %s = %s", axis, list(good))
}

func list(values []float64) string {
	var s []string
	for _, v := range values {
		s = append(s, short(v))
	}
	return strings.Join(s, ", ")
}

// short is a number for people.
func short(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v) && a < 1e6:
		return fmt.Sprintf("%.0f", v)
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 1:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// where are the points at which something is so.
func (d *Data) where(experiment string, so func(x float64) bool) []float64 {
	var good []float64
	for _, x := range d.over(experiment) {
		if so(x) {
			good = append(good, x)
		}
	}
	return good
}

// last and first are the ends of an axis: the largest cluster, the heaviest
// load; and the lightest.
func (d *Data) last(experiment string) float64 {
	points := d.over(experiment)
	return points[len(points)-1]
}

func (d *Data) first(experiment string) float64 { return d.over(experiment)[0] }

// sideBySide shows a measure of several series at a point.
func (d *Data) sideBySide(m measure, experiment string, x float64, series ...Series) string {
	var s []string
	for _, one := range series {
		s = append(s, fmt.Sprintf("%s %s", one.Label, short(d.value(m, experiment, one, x))))
	}
	return strings.Join(s, ", ")
}

// near is within a share of what is said, or within some units.
func near(got, want, share, within float64) bool {
	return math.Abs(got-want) <= math.Max(share*want, within)
}
