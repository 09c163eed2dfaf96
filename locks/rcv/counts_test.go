package rcv

import (
	"fmt"
	"math"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// In a system that knows nothing, node 0 needs the votes of half of the nodes,
// rounded up, since it wins where votes are equal: its own, one more for each
// RM, and then an EM.
func TestMessagesAlone(t *testing.T) {
	for n := 2; n <= 31; n++ {
		want := float64((n+1)/2-1) + 1
		if n == 2 {
			want = 0 // its own vote decides
		}
		got, err := locktest.Messages(With(Options{Eager: true}), locktest.Load{Nodes: n, Active: 1, Burst: true, Acquires: 1})
		if err != nil || got != want {
			t.Errorf("N=%d: %v messages, want %v: %v", n, got, want, err)
		}
	}
}

// A request costs at most N-1 RM, one IM and one EM. In a burst it is far less,
// and those that prefer unknown votes need fewer.
func TestMessages(t *testing.T) {
	long.NoRace(t)
	for _, n := range []int{3, 5, 10, 30} {
		var burst [2]float64
		for i, o := range []Options{{Eager: true}, {Eager: true, Uniform: true}} {
			for _, l := range []locktest.Load{{Burst: true, Acquires: 300 / n}, {Saturated: true, Acquires: 300}, {Acquires: 100}} {
				l.Nodes = n
				got, err := locktest.Messages(With(o), l)
				t.Logf("N=%d uniform=%v burst=%v saturated=%v: %.2f", n, o.Uniform, l.Burst, l.Saturated, got)
				if err != nil || got > float64(n+1) {
					t.Errorf("N=%d, %+v, %+v: %.2f messages a lock: %v", n, o, l, got, err)
				}
				if l.Burst {
					burst[i] = got
				}
			}
		}
		if n >= 10 && burst[0] >= burst[1] {
			t.Errorf("N=%d: %.2f messages a lock, but %.2f with a uniform choice", n, burst[0], burst[1])
		}
	}
}

// Who repeats a lock sends nothing; to change the holder takes an IM more than
// in the paper.
func TestMessagesKept(t *testing.T) {
	for _, n := range []int{2, 3, 9} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			got, err := locktest.Messages(Algorithm, locktest.Load{Nodes: n, Active: 1, Warm: true, Acquires: 10})
			if err != nil || math.Abs(got) > 0 {
				t.Errorf("%.3f messages a lock, want none: %v", got, err)
			}
			got, err = locktest.Messages(Algorithm, locktest.Load{Nodes: n, Active: 2, Turns: true, Warm: true, Acquires: 100})
			if err != nil || got > float64(n+1) {
				t.Errorf("two in turns: %.3f messages a lock: %v", got, err)
			}
		})
	}
}
