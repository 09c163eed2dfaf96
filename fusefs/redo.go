package fusefs

import (
	"sync"
	"sync/atomic"
	"time"
)

// redo are the changes that another process had begun, and which are not decided. They
// hold up nothing that the lock engine asks for: to be admitted they may wait for a view,
// and that for a file to be written out. So a lock may leave before they are decided,
// and who is admitted looks whether it has (see heldThrough). As far as it is up to this
// node an open lock does not: it does not yield before, for redoTime at most. What is not
// decided by then fails.
type redo struct {
	some atomic.Bool
	late atomic.Bool

	mu    sync.Mutex
	left  int       // that are not decided
	asked time.Time // when an open lock was to yield first
	told  int       // of which the log says that they fail

	// dropped is closed when what the kernel had of files is dropped; nil: nothing is
	// to be. No lock is used before.
	dropped chan struct{}
}

// isRedone reports whether a request has a change to make that another process had begun. It does
// not give up for the sake of who stands behind it, while the next process may not be a member again:
// its program could not be told whether the change was made.
func isRedone(c *conn, request uint64) bool {
	r := c.readers.of(request)
	return r != nil && r.past != nil && r.past.phase == phaseBegun
}

// redoTime is much longer than to make system calls again takes.
const redoTime = 10 * time.Second

func (d *redo) expect(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
	d.some.Store(n > 0)
}

// decide is called when it is known what becomes of p.
func (d *redo) decide(p *past) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.phase == phaseBegun && !p.decided {
		p.decided = true
		d.left--
	}
	d.some.Store(d.left > 0)
}

// keeps reports whether open locks stay for the sake of what is not decided, though they
// would yield.
func (d *redo) keeps() bool {
	if !d.some.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked.IsZero() {
		d.asked = time.Now()
	}
	if time.Since(d.asked) < redoTime {
		return true
	}
	d.late.Store(true) // before one yields
	return false
}
