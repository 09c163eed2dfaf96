package rcv

import (
	"testing"

	"github.com/dmxfs/dmxfs/locks/locktest"
)

// No method of a machine costs more for each lock where there are many.
func TestCosts(t *testing.T) { locktest.Costs(t, &Algorithm) }
