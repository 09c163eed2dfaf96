package engine

import (
	"dmxfs/locks"
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

// post sends what a turn of en's machine sends, or queues it behind what must
// happen first.
// REQUIRES: e.mu held.
func (e *Engine) post(en *entry, t *locks.Turn) {
	flush := t.Handover && en.dirty
	if len(t.Send) == 0 && !flush || e.phase < restoring {
		// Between two epochs a machine may speak, but nobody would listen:
		// Restore makes it say again what still matters.
		return
	}
	en.messages += len(t.Send)
	if len(t.Send) > 0 {
		e.deleg.mention(en.key)
	}
	if flush && len(en.outbox) == 0 && e.isClean(en.key) {
		flush, en.dirty = false, en.holdsWrite()
	}
	if !flush && len(en.outbox) == 0 {
		for _, m := range t.Send {
			for _, w := range e.words(en, m.To) {
				e.o.Transport.Send(e.view.Epoch, w.to, w.frame)
			}
			e.o.Transport.Send(e.view.Epoch, m.To, machineFrame(en, m.Msg))
		}
		return
	}
	frames := make([]letter, 0, len(t.Send))
	for _, m := range t.Send {
		frames = append(frames, e.words(en, m.To)...)
		frames = append(frames, letter{m.To, machineFrame(en, m.Msg)})
	}
	e.queue(en, flush, frames)
}

// queue sends frames in the active epoch, after what is queued already and, if
// flush, after a write-out.
// REQUIRES: e.mu held.
func (e *Engine) queue(en *entry, flush bool, frames []letter) {
	en.outbox = append(en.outbox, parcel{flush, frames})
	if flush {
		// What is written from now on is under a later grant, or under one of
		// another range that is held still.
		en.dirty = en.holdsWrite()
	}
	if !en.flushing {
		en.flushing = true
		e.background(func() { e.drain(en) })
	}
}

// background has f done, which takes e.mu.
// REQUIRES: e.mu held.
func (e *Engine) background(f func()) {
	if e.ended {
		go f() // nobody waits for the workers any more
	} else {
		e.workers.Go(f)
	}
}

// drain works through the outbox of en, in order, until it is empty.
func (e *Engine) drain(en *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// Between two epochs nobody listens: Freeze has emptied the outbox, and what
	// was put there since, by one that could not be restored, waits for nothing.
	for len(en.outbox) > 0 && e.phase >= restoring {
		epoch := e.view.Epoch
		if en.outbox[0].flush {
			e.flushing++
			e.mu.Unlock()
			e.flush(en.key)
			e.mu.Lock()
			e.flushing--
			e.flushed.Broadcast()
		}
		// A new epoch empties every outbox; then another parcel may be first.
		if len(en.outbox) == 0 || e.phase < restoring || e.view.Epoch != epoch {
			continue
		}
		for _, l := range en.outbox[0].frames {
			e.o.Transport.Send(epoch, l.to, l.frame)
		}
		en.outbox = en.outbox[1:]
	}
	for _, p := range en.outbox {
		en.dirty = en.dirty || p.flush
	}
	en.outbox, en.flushing = nil, false
}

// flush writes out what was written under k. An error means that data is lost,
// or will come late; see damage.go.
func (e *Engine) flush(k locks.Key) {
	if err := e.o.Files.Flush(k); err != nil {
		e.mu.Lock()
		e.damaged(k, err)
		e.mu.Unlock()
	}
}

// flushAll is flush for each of ks.
func (e *Engine) flushAll(ks []locks.Key) {
	if b, ok := e.o.Files.(BulkFlusher); ok && len(ks) > 1 {
		failed := b.FlushAll(ks)
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, k := range ks {
			if err := failed[k]; err != nil {
				e.damaged(k, err)
			}
		}
		return
	}
	for _, k := range ks {
		e.flush(k)
	}
}

// isClean reports whether nothing needs to be written out under k.
func (e *Engine) isClean(k locks.Key) bool {
	c, ok := e.o.Files.(Cleaner)
	return ok && c.Clean(k)
}
