package maekawa

import (
	"math"
	"testing"

	"github.com/dmxfs/dmxfs/locks/locktest"
)

// Where nobody else wants it a lock costs REQUEST, LOCKED and RELEASE for each
// member but the node itself. Where many do it is 3 to 5 for each on the
// average, the paper's c; and never more than 7.
func TestMessages(t *testing.T) {
	for _, n := range []int{2, 3, 5, 7, 9, 13, 30} {
		for name, quorum := range map[string]func(n, i int) []int{"plane": Plane, "grid": Grid} {
			alg := With(Options{Eager: true, Quorum: quorum})
			others := 0.0
			for i := range n {
				others += float64(len(quorum(n, i))-1) / float64(n)
			}
			got, err := locktest.Messages(alg, locktest.Load{Nodes: n, Turns: true, Acquires: 2 * n})
			if err != nil || math.Abs(got-3*others) > 1e-9 {
				t.Errorf("%s, N=%d, in turns: %.3f messages a lock, want %.3f: %v", name, n, got, 3*others, err)
			}
			for _, l := range []locktest.Load{{Burst: true, Acquires: 5}, {Saturated: true, Acquires: 300}} {
				l.Nodes = n
				got, err := locktest.Messages(alg, l)
				t.Logf("%s, N=%d, burst %v: %.2f, %.2f a member", name, n, l.Burst, got, got/others)
				if err != nil || got < 2.8*others || got > 5*others {
					t.Errorf("%s, N=%d, burst %v: %.2f messages a lock, %.2f for each other member: %v", name, n, l.Burst, got, got/others, err)
				}
			}
		}
		if got, err := locktest.Messages(Algorithm, locktest.Load{Nodes: n, Active: 1, Warm: true, Acquires: 10}); err != nil || got != 0 {
			t.Errorf("N=%d, one node repeats: %.3f messages a lock, want none: %v", n, got, err)
		}
	}
}
