package daemon

import (
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/dmxfs/dmxfs/internal/memory"
)

// Garbage may take more memory than the runtime allows by itself, unless the administrator
// has decided on it; and what does that takes none.
func TestGarbageHasMoreMemory(t *testing.T) {
	if err := memory.Spare(garbageSpare); err != nil {
		t.Skip(err)
	}
	read := func(name string) int64 {
		s := []metrics.Sample{{Name: name}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	const goal = "/gc/heap/goal:bytes"
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv("GOGC", "")
		t.Setenv("GOMEMLIMIT", "")
		t.Setenv(name, "100")
		var g garbage
		if err := g.reserve(); err != nil || g.unwritten != nil {
			t.Errorf("with %s: %d bytes, %v", name, len(g.unwritten), err)
		}
	}
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	runtime.GC()
	before := read(goal)
	var g garbage
	if err := g.reserve(); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	// The goal is of the heap with the object. What else this test has in use may have shrunk.
	if more := read(goal) - before; more < 2*garbageSize-4<<20 {
		t.Errorf("the goal has grown by %d bytes", more)
	}
	runtime.KeepAlive(&g)
}
