package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// mutex is base.mu. Whoever asks for a lock waits for it, whatever file it is
// about, so what takes long is done in parts, and how long it was held for is
// known.
type mutex struct {
	mu      sync.Mutex
	start   time.Time
	began   time.Duration // since start, when it was taken
	longest atomic.Int64  // in nanoseconds
	waiting atomic.Int64  // who wants it
	// busy, if it is set, is how long the calling thread has worked, for tests: it
	// does not matter then what else the machine does.
	busy func() time.Duration
	// rest, if it is set, says for how long others have m at each opportunity, for
	// tests on virtual time; 0: not at all.
	rest func() time.Duration
}

// breath is for how long the mutex is held at a time where that can be chosen.
const breath = 2 * time.Millisecond

// Lock takes m.
func (m *mutex) Lock() {
	if !m.mu.TryLock() {
		m.waiting.Add(1)
		m.mu.Lock()
		m.waiting.Add(-1)
	}
	m.taken()
}

// TryLock takes m, if nobody has it.
func (m *mutex) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.taken()
	return true
}

func (m *mutex) taken() {
	if m.busy != nil {
		runtime.LockOSThread()
	}
	m.began = m.now()
}

func (m *mutex) now() time.Duration {
	if m.busy != nil {
		return m.busy()
	}
	return time.Since(m.start)
}

// Unlock releases m.
func (m *mutex) Unlock() {
	if held := int64(m.now() - m.began); held > m.longest.Load() {
		m.longest.Store(held)
	}
	if m.busy != nil {
		runtime.UnlockOSThread()
	}
	m.mu.Unlock()
}

// tired reports whether m has been held for a breath. REQUIRES: m held.
func (m *mutex) tired() bool { return m.now()-m.began >= breath }

// breathe lets others have m, if it has been held for a breath; it is held again
// when breathe returns, and reports whether anything may have changed.
func (m *mutex) breathe() bool {
	var rest time.Duration
	if m.rest != nil {
		rest = m.rest()
	}
	if rest == 0 && !m.tired() {
		return false
	}
	m.Unlock()
	time.Sleep(rest)
	m.yield()
	m.Lock()
	return true
}

// yield lets who waits for m have it before the caller asks again: else that is
// always faster than one who has to be woken, for a millisecond each time.
// REQUIRES: m not held.
func (m *mutex) yield() {
	if m.waiting.Load() > 0 {
		time.Sleep(50 * time.Microsecond)
	} else {
		runtime.Gosched()
	}
}

// Longest is the longest time for which the engine was ever held up by one
// thing, with that in which the process was stopped or had no processor.
func (b *base) Longest() time.Duration { return time.Duration(b.mu.longest.Load()) }
