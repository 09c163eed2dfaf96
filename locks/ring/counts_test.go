package ring

import (
	"testing"

	"github.com/dmxfs/dmxfs/locks/locktest"
)

// A change of the holder costs N messages, whatever the load: one a hop, the
// last one home. (The paper says N-1.) Who repeats a lock sends none.
func TestMessages(t *testing.T) {
	for _, n := range []int{2, 3, 9, 30} {
		for _, c := range []struct {
			name string
			load locktest.Load
			want float64
		}{
			{"all at once", locktest.Load{Burst: true}, float64(n)},
			{"one after another", locktest.Load{}, float64(n)},
			{"in turns", locktest.Load{Turns: true}, float64(n)},
		} {
			c.load.Nodes, c.load.Acquires = n, 10
			got, err := locktest.Messages(With(Options{Eager: true}), c.load)
			if err != nil || got != c.want {
				t.Errorf("N=%d, %s: %.3f messages a lock, want %v: %v", n, c.name, got, c.want, err)
			}
		}
		for _, l := range []locktest.Load{{Active: 1, Warm: true}, {Active: 2, Turns: true, Warm: true}} {
			want := float64(0)
			if l.Active == 2 {
				want = float64(n)
			}
			l.Nodes, l.Acquires = n, 10
			if got, err := locktest.Messages(Algorithm, l); err != nil || got != want {
				t.Errorf("N=%d, %d nodes in turns, kept: %.3f messages a lock, want %v: %v", n, l.Active, got, want, err)
			}
		}
	}
}
