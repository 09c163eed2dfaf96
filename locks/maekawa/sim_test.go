package maekawa

import (
	"fmt"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks/exclusive"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// options tell the harness what this algorithm bears and promises.
var options = locktest.Options{Pair: pair, Reorders: true, Duplicates: true, AsksHolders: true}

// pair checks M1: a vote that a node counts has been given to it, and not taken
// back.
func pair(a, b locktest.Side, _ bool) error {
	x, y := coreOf(a), coreOf(b)
	if x == nil {
		return nil
	}
	for _, m := range x.members {
		if m.grant == 0 || x.site.Member(m.node) != b.ID {
			continue
		}
		if y == nil || y.lock.Request != x.my {
			return fmt.Errorf("M1: %v counts the vote of %s, which has given it to another", x.my, b.ID)
		}
	}
	return nil
}

func coreOf(s locktest.Side) *core {
	if s.Machine == nil {
		return nil
	}
	return exclusive.CoreOf(s.Machine).(*core)
}

func TestSimulate(t *testing.T) { locktest.Simulate(t, Algorithm, options) }

func TestSimulateVariants(t *testing.T) {
	for name, o := range map[string]Options{
		"grid": {Quorum: Grid}, "eager": {Eager: true}, "eager grid": {Eager: true, Quorum: Grid},
		"all": {Quorum: everybody},
	} {
		t.Run(name, func(t *testing.T) { locktest.Simulate(t, With(o), options) })
	}
}

// everybody is the quorum of a unanimous vote.
func everybody(n, _ int) []int {
	q := make([]int, n)
	for i := range q {
		q[i] = i
	}
	return q
}

func TestConformance(t *testing.T) { locktest.Conformance(t, Algorithm, options) }

func TestExplore(t *testing.T) {
	long.NoRace(t)
	locktest.ExploreExclusive(t, Algorithm, options)
}

func FuzzReceive(f *testing.F) { locktest.Fuzz(f, Algorithm, options) }
