package rcv

import (
	"testing"

	"dmxfs/locks/locktest"
)

// options tell the harness what this algorithm bears and promises.
var options = locktest.Options{Reorders: true, AsksHolders: true}

func TestSimulate(t *testing.T)    { locktest.Simulate(t, Algorithm, options) }
func TestConformance(t *testing.T) { locktest.Conformance(t, Algorithm, options) }
