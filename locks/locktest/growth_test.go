package locktest

import (
	"math"
	"testing"
	"time"
)

// What takes more than 2.5 times as long for twice as much is refused, a little
// less is not, and the best of some tries counts.
func TestGrowthOfTwice(t *testing.T) {
	for _, x := range []struct {
		twice float64
		ok    bool
	}{{2, true}, {2.45, true}, {2.55, false}, {math.Pow(2, 1.5), false}, {4, false}} {
		for _, disturbed := range []int{0, 1, 2} {
			measure := func(n float64) func() time.Duration {
				try := 0
				return func() time.Duration {
					took := float64(time.Millisecond) * math.Pow(x.twice, n)
					if try++; try <= disturbed {
						took *= 10
					}
					return time.Duration(took)
				}
			}
			few, many := measure(0), measure(math.Log2(times))
			_, _, ok := compare(growth, func() time.Duration { return times * few() }, many)
			if ok != x.ok {
				t.Errorf("%.2f times as long, with %d tries that are disturbed: %v, want %v", x.twice, disturbed, ok, x.ok)
			}
		}
	}
}
