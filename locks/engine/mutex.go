package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// mutex is Engine.mu. Whoever asks for a lock waits for it, whatever file it is
// about, so what takes long is done in parts, and how long it was held for is
// known.
type mutex struct {
	mu      sync.Mutex
	start   time.Time
	began   time.Duration // since start, when it was taken
	longest atomic.Int64  // in nanoseconds
}

// breath is for how long the mutex is held at a time where that can be chosen.
const breath = 2 * time.Millisecond

// Lock takes m.
func (m *mutex) Lock() {
	m.mu.Lock()
	m.began = time.Since(m.start)
}

// Unlock releases m.
func (m *mutex) Unlock() {
	if held := int64(time.Since(m.start) - m.began); held > m.longest.Load() {
		m.longest.Store(held)
	}
	m.mu.Unlock()
}

// tired reports whether m has been held for a breath. REQUIRES: m held.
func (m *mutex) tired() bool { return time.Since(m.start)-m.began >= breath }

// breathe lets others have m, if it has been held for a breath; it is held again
// when breathe returns, and reports whether anything may have changed.
func (m *mutex) breathe() bool {
	if !m.tired() {
		return false
	}
	m.Unlock()
	runtime.Gosched()
	m.Lock()
	return true
}

// Longest is the longest time for which the engine was ever held up by one
// thing, with that in which the process was stopped or had no processor.
func (e *Engine) Longest() time.Duration { return time.Duration(e.mu.longest.Load()) }
