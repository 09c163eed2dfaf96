package daemon

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/memory"
)

// Garbage may take more memory than the runtime allows by itself, unless the administrator
// has decided on it; and what makes room for it takes none.
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
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	var used [][]byte
	for range 64 {
		used = append(used, bytes.Repeat([]byte{1}, 1<<20))
	}
	clear(used) // its memory has been written to, and is what the object gets
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
	in := make([]byte, garbageSize/os.Getpagesize())
	if err := mincore(g.unwritten, in); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(in, []byte{1}); n > 0 {
		t.Errorf("%d of its %d pages are in memory", n, len(in))
	}
}

// mincore tells by in which pages of b are in memory, see mincore(2).
func mincore(b, in []byte) error {
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&in[0]))); e != 0 {
		return e
	}
	return nil
}
