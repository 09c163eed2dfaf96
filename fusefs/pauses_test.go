package fusefs

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// What other goroutines could do is seen: else they would wait for the next pause. The name of
// the metric is one that the runtime has.
func TestPausesSeeWhoWaits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	start := time.Now()
	now := func() time.Duration { return time.Since(start) }
	p := newPauses(4, now, nil)
	var ran atomic.Bool
	go func() { ran.Store(true) }()
	if !p.waiting() && !ran.Load() {
		t.Error("a goroutine that could run is not seen")
	}
	for range 3 { // once in a while the runtime takes who has paused before all others
		p.after(opSetLk, now(), false)
	}
	if !ran.Load() {
		t.Error("it has not run in the pauses behind lock calls")
	}
}

// Where nobody waits behind a lock, and there is no message, nobody is looked for.
func TestLocksOfOneProgramLeaveNothing(t *testing.T) {
	var messages uint64
	p := newPauses(4, func() time.Duration { return 0 }, func() uint64 { return messages })
	for _, c := range []struct {
		opcode uint32
		more   bool
		others bool
		want   bool
	}{
		{opcode: opSetLkw},
		{opcode: opSetLk, others: true, want: true},
		{opcode: opSetLkw, more: true, want: true},
		{opcode: opSetLkw},
		{opcode: opGetAttr, more: true},
		{opcode: opSetLk, want: true}, // nobody has been looked for since
		{opcode: opCreate, want: true},
		{opcode: opRelease, want: true},
		{opcode: opGetAttr, others: true},
	} {
		if c.more {
			messages++
		}
		if got := p.leavesWork(c.opcode, c.others); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
