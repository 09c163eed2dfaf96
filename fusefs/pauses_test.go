package fusefs

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// What other goroutines could do is seen: else they would wait for the next pause. The name of
// the metric is one that the runtime has.
func TestPausesSeeWhoWaits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := newPauses(4)
	var ran atomic.Bool
	go func() { ran.Store(true) }()
	if !p.waiting() && !ran.Load() {
		t.Error("a goroutine that could run is not seen")
	}
	for range 3 { // once in a while the runtime takes who has paused before all others
		p.after(opSetLk)
	}
	if !ran.Load() {
		t.Error("it has not run in the pauses behind lock calls")
	}
}
