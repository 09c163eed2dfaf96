package fusefs

import (
	"sync"
	"sync/atomic"
	"time"
)

// redo are the changes that another process had begun, and which are not decided. No lock
// is given up to another host before they are, for longest at most; after that they
// fail.
type redo struct {
	some atomic.Bool

	mu      sync.Mutex
	left    int // that are not decided
	running int // that are being made again
	late    bool
	changed chan struct{} // closed when left or running changes; nil: nobody waits

	// dropped is closed when what the kernel had of files is dropped; nil: nothing is
	// to be. No lock is used before.
	dropped chan struct{}
}

// redoTime is much longer than to make system calls again takes.
const redoTime = 10 * time.Second

func (d *redo) expect(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
	d.some.Store(n > 0)
}

// begin reports whether a change may be made again; then decide says that it was.
func (d *redo) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.late {
		d.running++
	}
	return !d.late
}

// decide is called when it is known what becomes of p.
func (d *redo) decide(p *past, ran bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ran {
		d.running--
	}
	if p.phase == phaseBegun && !p.decided {
		p.decided = true
		d.left--
	}
	d.some.Store(d.left > 0 || d.running > 0)
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// await waits until all are decided.
func (d *redo) await() {
	if !d.some.Load() {
		return
	}
	t := time.NewTimer(redoTime)
	defer t.Stop()
	for {
		d.mu.Lock()
		if d.running == 0 && (d.left == 0 || d.late) {
			d.mu.Unlock()
			return
		}
		if d.changed == nil {
			d.changed = make(chan struct{})
		}
		changed := d.changed
		d.mu.Unlock()
		select {
		case <-changed:
		case <-t.C:
			d.mu.Lock()
			d.late = true
			d.mu.Unlock()
		}
	}
}
