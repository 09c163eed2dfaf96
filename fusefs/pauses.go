package fusefs

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// pauses lets other goroutines run on the processor of one that reads requests.
//
// What a request has left to others, as the messages that ask for the lock of a new file or
// give up a lock, they do when its answer is written. Otherwise it would have to wait in
// read(2) with the reader, until another thread has been woken up and takes it over. And
// where there are as many readers as places to run, as beside much I/O, the others may run
// once in a while in any case: messages have come.
//
// A pause wakes up another thread, whatever there is to do, and that takes the processor on
// which the program would go on. So there are few: with one after each lock call, and every
// 100 µs, SQLite took a tenth longer.
type pauses struct {
	last     time.Time        // when it paused
	looked   time.Time        // when it looked whether somebody waits
	runnable []metrics.Sample // nil: others have processors
}

// pauseEvery is how long a reader may keep others from running, and lookEvery how long if one
// of them could.
const (
	pauseEvery = 2 * time.Millisecond
	lookEvery  = 100 * time.Microsecond
)

// manyProcessors are so many that others have some beside readers. To ask the runtime who waits
// takes the longer the more there are.
const manyProcessors = 8

// newPauses is for a reader where so many goroutines run at a time.
func newPauses(processors int) *pauses {
	now := time.Now()
	p := &pauses{last: now, looked: now}
	if processors < manyProcessors {
		p.runnable = []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
	}
	return p
}

// after is called when a request is answered.
func (p *pauses) after(opcode uint32) {
	now := time.Now()
	pause := now.Sub(p.last) > pauseEvery
	if !pause && (leavesWork(opcode) || now.Sub(p.looked) > lookEvery) {
		p.looked = now
		pause = p.waiting()
	}
	if pause {
		runtime.Gosched()
		p.last = time.Now()
		p.looked = p.last
	}
}

// waiting reports whether a goroutine could run that does not. It takes 50 ns for three
// processors.
func (p *pauses) waiting() bool {
	if p.runnable == nil {
		return false
	}
	metrics.Read(p.runnable)
	v := p.runnable[0].Value
	return v.Kind() != metrics.KindUint64 || v.Uint64() > 0
}

// leavesWork reports whether the answer to such a request may leave something for other
// goroutines that hosts wait for.
func leavesWork(opcode uint32) bool {
	switch opcode {
	case opCreate, opRelease, opFlush, opSetLk, opSetLkw:
		return true
	}
	return false
}
