package engine

import (
	"sync"

	"github.com/dmxfs/dmxfs/locks"
)

// parcel is what one turn sends.
type parcel struct {
	// flush: the data must be written out before the frames leave.
	flush  bool
	frames []letter
}

type letter struct {
	to    locks.NodeID
	frame []byte
}

// outboxes send what turns send, in its order, and write out before that what has
// to be on the storage first.
type outboxes struct {
	*base
	ledger   *ledger
	damages  *damages
	borrowed *borrowed

	// workers drain outboxes; flushing counts those that write out just now,
	// flushed is told when one has.
	workers  sync.WaitGroup
	ended    bool // Run waits for the workers
	flushing int
	flushed  *sync.Cond
}

// post sends what a turn of en's machine sends, or queues it behind what must
// happen first.
// REQUIRES: mu held.
func (o *outboxes) post(en *entry, t *locks.Turn) {
	flush := t.Handover && en.dirty
	if len(t.Send) == 0 && !flush || o.phase < restoring {
		// Between two epochs a machine may speak, but nobody would listen:
		// Restore makes it say again what still matters.
		return
	}
	en.messages += len(t.Send)
	if len(t.Send) > 0 {
		o.borrowed.mention(en.key)
	}
	if flush && len(en.outbox) == 0 && o.isClean(en.key) {
		flush, en.dirty = false, en.holdsWrite()
	}
	if !flush && len(en.outbox) == 0 {
		for _, m := range t.Send {
			for _, w := range o.damages.words(en, m.To) {
				o.o.Transport.Send(o.view.Epoch, w.to, w.frame)
			}
			o.o.Transport.Send(o.view.Epoch, m.To, machineFrame(en, m.Msg))
		}
		return
	}
	frames := make([]letter, 0, len(t.Send))
	for _, m := range t.Send {
		frames = append(frames, o.damages.words(en, m.To)...)
		frames = append(frames, letter{m.To, machineFrame(en, m.Msg)})
	}
	o.queue(en, flush, frames)
}

// queue sends frames in the active epoch, after what is queued already and, if
// flush, after a write-out.
// REQUIRES: mu held.
func (o *outboxes) queue(en *entry, flush bool, frames []letter) {
	en.outbox = append(en.outbox, parcel{flush, frames})
	if flush {
		// What is written from now on is under a later grant, or under one of
		// another range that is held still.
		en.dirty = en.holdsWrite()
	}
	if !en.flushing {
		en.flushing = true
		o.background(func() { o.drain(en) })
	}
}

// background has f done, which takes mu.
// REQUIRES: mu held.
func (o *outboxes) background(f func()) {
	if o.ended {
		go f() // nobody waits for the workers any more
	} else {
		o.workers.Go(f)
	}
}

// drain works through the outbox of en, in order, until it is empty.
func (o *outboxes) drain(en *entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// Between two epochs nobody listens: Freeze has emptied the outbox, and what
	// was put there since, by one that could not be restored, waits for nothing.
	for len(en.outbox) > 0 && o.phase >= restoring {
		epoch := o.view.Epoch
		if en.outbox[0].flush {
			o.beginFlush()
			o.mu.Unlock()
			o.flush(en.key)
			o.mu.Lock()
			o.endFlush()
		}
		// A new epoch empties every outbox; then another parcel may be first.
		if len(en.outbox) == 0 || o.phase < restoring || o.view.Epoch != epoch {
			continue
		}
		for _, l := range en.outbox[0].frames {
			o.o.Transport.Send(epoch, l.to, l.frame)
		}
		en.outbox = en.outbox[1:]
		o.ledger.written(en)
	}
	for _, p := range en.outbox {
		en.dirty = en.dirty || p.flush
	}
	en.outbox, en.flushing = nil, false
	o.ledger.written(en)
}

// beginFlush counts what writes out just now, until endFlush.
func (o *outboxes) beginFlush() { o.flushing++ }

func (o *outboxes) endFlush() {
	o.flushing--
	o.flushed.Broadcast()
}

// awaitFlushes waits for what was begun, or that another epoch begins.
// REQUIRES: mu held. It lets go of it in between.
func (o *outboxes) awaitFlushes() {
	for o.flushing > 0 && o.phase < restoring {
		o.flushed.Wait()
	}
}

// awaitWorkers waits for what is done in the background.
// REQUIRES: mu not held.
func (o *outboxes) awaitWorkers() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.workers.Wait()
}

// flush writes out what was written under k. An error means that data is lost,
// or will come late; see damage.go.
func (o *outboxes) flush(k locks.Key) {
	if err := o.o.Files.Flush(k); err != nil {
		o.mu.Lock()
		o.damages.add(k, err)
		o.mu.Unlock()
	}
}

// flushAll is flush for each of ks.
func (o *outboxes) flushAll(ks []locks.Key) {
	if b, ok := o.o.Files.(BulkFlusher); ok && len(ks) > 1 {
		failed := b.FlushAll(ks)
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, k := range ks {
			if err := failed[k]; err != nil {
				o.damages.add(k, err)
			}
		}
		return
	}
	for _, k := range ks {
		o.flush(k)
	}
}

// isClean reports whether nothing needs to be written out under k.
func (o *outboxes) isClean(k locks.Key) bool {
	c, ok := o.o.Files.(Cleaner)
	return ok && c.Clean(k)
}
