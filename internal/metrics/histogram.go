package metrics

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	schema = 2           // of the native histogram
	per    = 1 << schema // buckets for each doubling

	lowest  = -30 // the first bucket ends at 2^lowest seconds, 1 ns
	highest = 20  // the last one holds all above 2^highest seconds, 12 days
	buckets = (highest-lowest)*per + 2
)

// Histogram counts durations. The zero value is ready; its methods are safe for
// concurrent use.
type Histogram struct {
	counts [buckets]atomic.Uint64
	nanos  atomic.Int64
}

// bounds are the upper bounds of the buckets of one doubling, as fractions of
// [math.Frexp].
var bounds = [per]float64{0.5, 0.5 * 1.189207115002721, 0.5 * math.Sqrt2, 0.5 * 1.681792830507429}

// Observe counts a duration. A negative one counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	if d < 0 {
		d = 0
	}
	h.counts[bucket(d)].Add(1)
	h.nanos.Add(int64(d))
}

// bucket is the index of the bucket of d: bucket i holds what is above the bound of
// i-1, and at most 2^(lowest + i/per) seconds.
func bucket(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	frac, exp := math.Frexp(float64(d) * 1e-9)
	n := 0
	for n < per && frac > bounds[n] {
		n++
	}
	return min(max((exp-1-lowest)*per+n, 0), buckets-1)
}

// classic are the exponents, of 2, of the classic buckets' bounds.
const (
	classicFirst = -20
	classicLast  = 12
	classicStep  = 2
)

// seen reports whether anything was counted.
func (h *Histogram) seen() bool {
	for i := range h.counts {
		if h.counts[i].Load() > 0 {
			return true
		}
	}
	return false
}

// metric is h as Prometheus takes it.
func (h *Histogram) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	native := map[int]int64{}
	var count uint64
	var cumulative [buckets]uint64
	for i := range h.counts {
		n := h.counts[i].Load()
		count += n
		cumulative[i] = count
		if n > 0 {
			native[lowest*per+i] = int64(n)
		}
	}
	m, err := prometheus.NewConstNativeHistogram(desc, count, float64(h.nanos.Load())/1e9, native, nil, 0, schema, 0, time.Time{}, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return &both{m, cumulative}
}

// both is a histogram that is native and classic.
type both struct {
	prometheus.Metric
	cumulative [buckets]uint64
}

func (b *both) Write(out *dto.Metric) error {
	if err := b.Metric.Write(out); err != nil {
		return err
	}
	h := out.Histogram
	h.Bucket, h.CreatedTimestamp = nil, nil
	for exp := classicFirst; exp <= classicLast; exp += classicStep {
		n, bound := b.cumulative[(exp-lowest)*per], math.Ldexp(1, exp)
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &bound, CumulativeCount: &n})
	}
	return nil
}
