package fusefs

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// pauses lets other goroutines run on the processor of one that reads requests.
//
// What a request has left to others, as to send the messages that ask for the lock of a new
// file or give up a lock, they do when its answer is written; so do those who have waited for the
// engine meanwhile with a message that has come. Otherwise that would have to wait in read(2) with
// the reader, until another thread has been woken up and takes it over. And where there are as many
// readers as places to run, as beside much I/O, the others may run once in a while in any case.
//
// A pause wakes up another thread, whatever there is to do, and that takes the processor on
// which the program would go on. So there are few: with one after each lock call, and every
// 100 µs, SQLite took a tenth longer.
type pauses struct {
	now      func() time.Duration
	messages func() uint64    // see Options.Messages
	before   uint64           // what messages said
	last     time.Duration    // when it paused
	looked   time.Duration    // when it looked whether somebody waits
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
func newPauses(processors int, now func() time.Duration, messages func() uint64) *pauses {
	p := &pauses{now: now, messages: messages, last: now(), looked: now()}
	if processors < manyProcessors {
		p.runnable = []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
	}
	return p
}

// after is called when a request was answered at that time. With others there are more that are
// under way: one of them may have waited for this one.
func (p *pauses) after(opcode uint32, at time.Duration, others bool) {
	pause := at-p.last > pauseEvery
	if !pause && (p.leavesWork(opcode, others) || at-p.looked > lookEvery) {
		p.looked = at
		pause = p.waiting()
	}
	if pause {
		runtime.Gosched()
		p.last = p.now()
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
func (p *pauses) leavesWork(opcode uint32, others bool) bool {
	switch opcode {
	case opCreate, opRelease, opFlush:
		return true
	case opSetLk, opSetLkw: // of a lock that nobody else wants it leaves nothing
		if others || p.messages == nil {
			return true
		}
		now := p.messages()
		more := now != p.before
		p.before = now
		return more
	}
	return false
}
