package ring

import (
	"fmt"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks/exclusive"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// options tell the harness what this algorithm bears and promises.
var options = locktest.Options{Pair: pair, Reorders: true, Duplicates: true, AsksHolders: true}

// pair checks R4, the paper's property 4.1: who has the lock goes before all
// that wait for it.
func pair(a, b locktest.Side, _ bool) error {
	x, y := coreOf(a), coreOf(b)
	if x != nil && y != nil && x.in && !y.my.None() && !x.my.Precedes(y.my) {
		return fmt.Errorf("R4: %v has the lock before %v", x.my, y.my)
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

func TestSimulateEager(t *testing.T) { locktest.Simulate(t, With(Options{Eager: true}), options) }

func TestConformance(t *testing.T) { locktest.Conformance(t, Algorithm, options) }

func TestExplore(t *testing.T) {
	long.NoRace(t)
	locktest.ExploreExclusive(t, Algorithm, options)
}

func FuzzReceive(f *testing.F) { locktest.Fuzz(f, Algorithm, options) }
