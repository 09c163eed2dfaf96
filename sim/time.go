package sim

import "math"

// Time is virtual time, and a span of it.
type Time int64

// unit is one of the units in which a [Config] gives times. It is a power of
// two, so that halves and quarters are exact.
const unit Time = 1 << 20

// Bounds in units, for one delay or CS and for the end of a run.
const (
	maxSpan     = 1e6
	maxDuration = 1e12
)

// endOfTime is more than maxDuration and far from an overflow.
const endOfTime Time = 1 << 62

func fromUnits(f float64) Time { return Time(math.Round(f * float64(unit))) }

// units is the inverse of fromUnits.
func (t Time) units() float64 { return float64(t) / float64(unit) }
