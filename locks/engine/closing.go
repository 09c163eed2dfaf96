package engine

import (
	"bytes"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// The kernel tells a FUSE file system of the last close of an open file only
// after close(2) has returned, and says nothing that tells a last close from
// another one. So a lock that ended with it, to the program's knowledge, is
// held here for a moment more. Who waits for it does not notice; who asks
// without waiting would be refused a lock that is free. Hence tries, and what
// other nodes say of the key, wait while a lock may be on its way out.

// closeTime is how long that is at most. A close that was not the last one, as
// at the end of each command that has inherited a descriptor, costs who asks at
// that moment so much.
const closeTime = 50 * time.Millisecond

// closings hold up what asks for a lock that may be on its way out.
type closings struct {
	*base
	entries *entries
	inbox   *inbox
}

// closing are the open files of a key that hold something, and were closed,
// perhaps for the last time.
type closing struct {
	handles map[locks.HandleID]bool
	timer   *time.Timer
	done    chan struct{} // closed when it is over
	frames  []earlyFrame
}

// closing is [Engine.Closing].
func (cs *closings) closing(k locks.Key, h locks.HandleID) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	en := cs.entries.all[k]
	if en == nil || cs.phase != active || !en.holdsBy(h) {
		return
	}
	if en.closing == nil {
		c := &closing{handles: map[locks.HandleID]bool{}, done: make(chan struct{})}
		c.timer = time.AfterFunc(closeTime, func() {
			cs.mu.Lock()
			defer cs.mu.Unlock()
			if en.closing == c {
				cs.end(en)
			}
		})
		en.closing = c
	}
	en.closing.handles[h] = true
}

// handleClosed: nothing is held through h any more.
func (cs *closings) handleClosed(en *entry, h locks.HandleID) {
	if c := en.closing; c != nil {
		delete(c.handles, h)
		if len(c.handles) == 0 {
			cs.end(en)
		}
	}
}

// end lets all go on that was held up, in its order: none of it lets go of
// mu, or what comes next from the same member would come before the rest of it.
// If the epoch is ending, or the tenure, and this file's turn has not come, it is
// dropped, as there.
func (cs *closings) end(en *entry) {
	frames := en.closing.frames
	cs.forget(en)
	if cs.phase != active {
		frames = nil
	}
	for _, f := range frames {
		cs.inbox.handle(f.from, f.frame)
	}
	// One of them may have dropped en, and the next one made it anew.
	if cs.entries.all[en.key] == en {
		cs.entries.tidy(en)
	}
}

// forget lets who waits here go on. What came from other nodes is
// dropped.
func (cs *closings) forget(en *entry) {
	c := en.closing
	if c == nil {
		return
	}
	en.closing = nil
	c.timer.Stop()
	close(c.done)
}

// heldUp keeps a frame about k, which remains the caller's, until no lock may be on its way out, and
// reports whether it does.
func (cs *closings) heldUp(k locks.Key, from locks.NodeID, frame []byte) bool {
	en := cs.entries.all[k]
	if en == nil || en.closing == nil {
		return false
	}
	en.closing.frames = append(en.closing.frames, earlyFrame{from, bytes.Clone(frame)}) // see [Engine.ReceiveNow]
	return true
}

// await waits, as the try r does, until no lock of its file may be on its
// way out. REQUIRES: mu held; it is held again when awaitClosed returns.
func (cs *closings) await(cancel <-chan struct{}, r *locks.Request) error {
	en := cs.entries.all[r.Key]
	if en == nil || en.closing == nil || en.closing.handles[r.Handle] && len(en.closing.handles) == 1 {
		return nil
	}
	done := en.closing.done
	cs.mu.Unlock()
	defer cs.mu.Lock()
	r.WillWait()
	select {
	case <-done:
		return nil
	case <-cancel:
		return locks.ErrInterrupted
	}
}
