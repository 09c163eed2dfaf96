package systemtest

import (
	"os"
	"runtime"
	"testing"
)

// With one processor the goroutines that wake at one moment run in one order,
// so that a seed is a run. It is faster, too: they hand over to one another.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
