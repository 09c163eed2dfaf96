package engine

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// BenchmarkAnswerWish is what it takes to delegate with as many exceptions as
// there may be.
func BenchmarkAnswerWish(b *testing.B) {
	e := costly(b, 3)
	e.o.Uniform = func() string { return "rw" }
	for i := range maxClean {
		e.entries.clean.put(locks.Key{File: fmt.Sprintf("directory/file%d", i), Class: locks.Open})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lent.opened = -1 << 60
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := locktest.ThreadTime()
	for b.Loop() {
		e.borrowed.reset()
		e.lent.reset()
		e.lent.answer("n1")
		if e.lent.to != "n1" {
			b.Fatal("it refuses")
		}
	}
	b.ReportMetric((locktest.ThreadTime()-began).Seconds()*1000/float64(b.N), "cpu-ms/op")
}
