package rcv

import (
	"fmt"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks/exclusive"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// options tell the harness what this algorithm bears and promises.
var options = locktest.Options{Pair: pair, Reorders: true, AsksHolders: true}

// pair checks V1: where two nodes know of a place in the order, they know of
// the same request. A node that is sealed may be behind the others by all that
// has been forgotten.
func pair(a, b locktest.Side, _ bool) error {
	x, y := coreOf(a), coreOf(b)
	if x == nil || y == nil || x.sealed != nil || y.sealed != nil {
		return nil
	}
	if err := x.info.agrees(&y.info); err != nil {
		return fmt.Errorf("V1: %w", err)
	}
	return nil
}

func coreOf(s locktest.Side) *core {
	if s.Machine == nil {
		return nil
	}
	return exclusive.CoreOf(s.Machine).(*core)
}

func TestSimulate(t *testing.T) {
	long.NoRace(t)
	locktest.Simulate(t, Algorithm, options)
}

// Within what is not forgotten messages may come twice.
func TestSimulateTwice(t *testing.T) {
	long.NoRace(t)
	simulateTwice(t, Options{remembers: true})
}

// The lock is given back at once, as in the paper. Then an IM can come for a
// request that is over.
func TestSimulateEager(t *testing.T) {
	long.NoRace(t)
	simulateTwice(t, Options{Eager: true})
}

func TestSimulateUniform(t *testing.T) {
	long.NoRace(t)
	locktest.Simulate(t, With(Options{Uniform: true}), options)
	simulateTwice(t, Options{Eager: true, Uniform: true})
}

func simulateTwice(t *testing.T, o Options) {
	opt := options
	opt.Remembers, opt.Duplicates = true, true
	locktest.Simulate(t, With(o), opt)
}

func TestConformance(t *testing.T) { locktest.Conformance(t, Algorithm, options) }

func TestExplore(t *testing.T) {
	long.NoRace(t)
	locktest.ExploreExclusive(t, Algorithm, options)
}

func FuzzReceive(f *testing.F) { locktest.Fuzz(f, Algorithm, options) }
