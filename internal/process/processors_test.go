package process

import (
	"runtime"
	"testing"
)

// There are as many processors as are needed, and not fewer than there were; what somebody has
// decided holds.
func TestRunAtLeast(t *testing.T) {
	had := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(had)
	for _, x := range []struct {
		said     string
		n, holds int
	}{{"", 1, 2}, {"2", 3, 2}, {"", 3, 3}, {"", 2, 3}} {
		t.Setenv("GOMAXPROCS", x.said)
		if RunAtLeast(x.n); runtime.GOMAXPROCS(0) != x.holds {
			t.Errorf("GOMAXPROCS=%q, at least %d: %d run", x.said, x.n, runtime.GOMAXPROCS(0))
		}
	}
}
