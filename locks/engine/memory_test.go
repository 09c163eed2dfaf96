package engine

import (
	"runtime"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

// maxRangeBytes is how much a range of a file may take as long as a program holds
// it, in the engine and in the machine. A process may have 250,000. The garbage
// collector looks at all of that while programs ask for more, and makes whoever
// allocates meanwhile, and has the engine, help it.
const maxRangeBytes = 450

func TestHeldRangeIsSmall(t *testing.T) {
	if long.Race {
		t.Skip("with -race all is larger")
	}
	const n = 60_000
	e := costly(t, 1)
	must(e, all(1, locks.Write))
	e.UnlockOwner(manyKey, 1)
	before := heap()
	takeMany(e, n)
	each := (heap() - before) / n
	if t.Logf("a range that is held takes %d B", each); each > maxRangeBytes {
		t.Errorf("a range that is held takes %d B, want %d at most", each, maxRangeBytes)
	}
	if held, _ := e.Count(); held != n {
		t.Errorf("%d are held, want %d", held, n)
	}
}

// A list of very many does not take much more than it says, nor at a time: while
// there is more to be looked at by the garbage collector, everybody has to help it.
func TestListTakesLittleMemory(t *testing.T) {
	const n, most = 60_000, 150
	e := costly(t, 1)
	takeMany(e, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	listed := 0
	for l := range e.List() {
		if l.State == Held && l.Range.Start == 2*uint64(listed) {
			listed++
		}
	}
	runtime.ReadMemStats(&after)
	each := (after.TotalAlloc - before.TotalAlloc) / n
	if t.Logf("a row takes %d B", each); listed != n || each > most {
		t.Errorf("%d rows of %d B each, want %d of %d B at most", listed, each, n, most)
	}
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what was freed while the first one ran
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
