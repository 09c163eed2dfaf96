package journal

import (
	"fmt"
	"time"
)

// stallAfter is how long a write can take before the journal is unhealthy.
const stallAfter = 3 * time.Second

// fault is why the journal is not healthy.
type fault struct {
	err   error
	since time.Time
}

// do calls f, which may take long: then Healthy says so while it lasts.
func (w *writer) do(f func() error) error {
	w.faultMu.Lock()
	w.busy = true
	w.faultMu.Unlock()
	w.stall.Reset(stallAfter)
	defer func() {
		w.stall.Stop()
		w.faultMu.Lock()
		w.busy = false
		w.faultMu.Unlock()
	}()
	return f()
}

// stalled is called by the timer.
func (w *writer) stalled() {
	w.faultMu.Lock()
	defer w.faultMu.Unlock()
	if w.busy {
		w.setFault(fmt.Errorf("the disk has not answered for %v", stallAfter))
	}
}

// setFault makes Healthy say err. REQUIRES: faultMu held.
func (w *writer) setFault(err error) {
	f := &fault{err: fmt.Errorf("journal: %w", err), since: time.Now()}
	if old := w.fault.Load(); old != nil {
		f.since = old.since
	} else {
		w.log.Error("the journal can't be written: records are kept in memory as far as it goes", "error", err)
	}
	w.fault.Store(f)
}

func (w *writer) healthy() {
	w.faultMu.Lock()
	f := w.fault.Swap(nil)
	w.faultMu.Unlock()
	if f != nil {
		w.log.Info("the journal can be written again", "after", time.Since(f.since).Round(time.Millisecond))
	}
}
