package engine

import (
	"testing"
	"time"

	"dmxfs/locks"
)

// What is left to be sent when an epoch could not be restored keeps nobody from
// the engine, and is written out later.
func TestAnOutboxBetweenTwoEpochs(t *testing.T) {
	e := costly(t, 2)
	r := byProcess(1, locks.Posix, "f", locks.Write, locks.Whole)
	e.mu.Lock()
	en := e.entry(r.Key, "f", "rw")
	e.phase = frozen
	en.outbox = []parcel{{}, {flush: true}}
	en.flushing = true
	e.mu.Unlock()
	go e.drain(en)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for flushing := true; flushing; {
			e.mu.Lock()
			flushing = en.flushing
			e.mu.Unlock()
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the engine is stuck")
	}
	if !en.dirty || len(en.outbox) > 0 {
		t.Errorf("dirty %v, outbox %v", en.dirty, en.outbox)
	}
}
