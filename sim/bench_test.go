package sim

import (
	"fmt"
	"testing"
)

// BenchmarkEvents is how fast the simulator is: events (messages, requests,
// entries, exits) per second of real time, algorithm included.
func BenchmarkEvents(b *testing.B) {
	for _, a := range Algorithms() {
		for _, n := range []int{30, 300} {
			b.Run(fmt.Sprintf("alg=%s/n=%d", a.Name, n), func(b *testing.B) {
				c := Config{Algorithm: a, Nodes: n, Delay: 5, CS: 10, Load: Poisson, Rate: 0.01, Duration: 10_000}
				events := 0
				for b.Loop() {
					c.Seed++
					r, err := Run(b.Context(), c)
					if err != nil {
						b.Fatal(err)
					}
					events += r.Messages + 3*r.CS
				}
				b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
