package engine

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// bulk writes out many files at once.
type bulk struct {
	nothing
	all [][]locks.Key
	one int
}

func (b *bulk) Flush(locks.Key) error { b.one++; return nil }
func (b *bulk) FlushAll(ks []locks.Key) map[locks.Key]error {
	b.all = append(b.all, ks)
	return map[locks.Key]error{ks[3]: io.ErrUnexpectedEOF}
}

// What was written under many locks is written out together before a new view.
func TestManyFilesAreWrittenOutTogether(t *testing.T) {
	e := costly(t, 1)
	b := new(bulk)
	e.o.Files = b
	for i := range 100 {
		if _, err := e.Lock(nil, byProcess(1, locks.Posix, fmt.Sprint("f", i), locks.Write, locks.Whole)); err != nil {
			t.Fatal(err)
		}
	}
	e.Freeze()
	e.State()
	if len(b.all) != 1 || len(b.all[0]) != 100 || b.one != 0 {
		t.Errorf("%d at once, %d alone", len(b.all), b.one)
	}
	if n := len(e.damages.own); n != 1 {
		t.Errorf("%d files are known to be damaged, not the one", n)
	}
}

// What is left to be sent when an epoch could not be restored keeps nobody from
// the engine, and is written out later.
func TestAnOutboxBetweenTwoEpochs(t *testing.T) {
	e := costly(t, 2)
	r := all(1, locks.Write)
	e.mu.Lock()
	en := e.entries.entry(r.Key, "f", "rw")
	e.phase = frozen
	en.outbox = []parcel{{}, {flush: true}}
	en.flushing = true
	e.mu.Unlock()
	go e.outboxes.drain(en)
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
