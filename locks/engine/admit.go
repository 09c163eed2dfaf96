package engine

import "github.com/dmxfs/dmxfs/locks"

// Admit is asked directly before I/O under a lock that was granted in tenure
// t. It returns nil when the I/O may begin now, waits while this node is
// suspended, and returns [locks.ErrLost] when the tenure is over.
func (b *base) Admit(cancel <-chan struct{}, t locks.Tenure) error {
	for {
		if b.Tenure() != t {
			return locks.ErrLost
		}
		if b.o.Live(b.o.Guard) {
			return nil
		}
		b.mu.Lock()
		changed, closed, why := b.changed, b.closed, b.over()
		b.mu.Unlock()
		if closed {
			return why
		}
		// Live again, or expelled: the driver calls Resume, ResumeIO or Expelled. The
		// condition is looked at once more, since it may have come true
		// before changed was read.
		if b.Tenure() != t || b.o.Live(b.o.Guard) {
			continue
		}
		select {
		case <-changed:
		case <-cancel:
			return locks.ErrInterrupted
		}
	}
}
