package figures

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// ticks are labels at given values; gonum's own choice is not at the values
// that people expect.
func ticks(values []float64) plot.ConstantTicks {
	var all plot.ConstantTicks
	for _, v := range values {
		all = append(all, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return all
}

// linear is an axis from 0 to a round value that is not below most, and where
// it has its ticks.
func linear(most float64) (end float64, values []float64) {
	step := round125(most / 6)
	for i := 0; ; i++ {
		v, _ := strconv.ParseFloat(strconv.FormatFloat(step*float64(i), 'g', 12, 64), 64) // 0.6, not 0.6000000000000001
		values = append(values, v)
		if v >= most-1e-9*step {
			return v, values
		}
	}
}

// logarithmic is an axis between round values around least and most, with ticks
// at 1, 2 and 5 times the powers of ten.
func logarithmic(least, most float64) (begin, end float64, values []float64) {
	for e := math.Floor(math.Log10(least)); ; e++ {
		for _, m := range []float64{1, 2, 5} {
			// Parsed, since a product of powers would not be exact.
			v, _ := strconv.ParseFloat(strconv.FormatFloat(m, 'f', 0, 64)+"e"+strconv.Itoa(int(e)), 64)
			if v <= least {
				values = nil // the axis begins at the last such value
			}
			values = append(values, v)
			if v >= most && len(values) > 1 {
				return values[0], v, values
			}
		}
	}
}

// round125 is the smallest of 1, 2 and 5 times a power of ten that is not below
// v.
func round125(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}
