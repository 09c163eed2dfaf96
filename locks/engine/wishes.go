package engine

import (
	"github.com/dmxfs/dmxfs/locks"
)

// wishes are what others want of what is held here.
type wishes struct {
	*base
	entries *entries
	yielder Yielder // nil: nobody wants to know
}

// of is [Engine.Wanted].
func (w *wishes) of(k locks.Key) locks.Mode {
	w.mu.Lock()
	defer w.mu.Unlock()
	if en := w.entries.all[k]; en != nil {
		return w.wanted(en)
	}
	return 0
}

func (w *wishes) wanted(en *entry) locks.Mode {
	if w.beside(en) {
		return locks.Write // what others want while a barrier is up is not known here
	}
	if m := en.machine.Wanted(); m != 0 {
		return m
	}
	for t := range en.parked {
		for range en.inTheWay(t.Mode, t.Range, &t.req.Owner) {
			return t.Mode
		}
	}
	return 0
}

// tell tells the files, after a turn, if an open lock is wanted.
func (w *wishes) tell(en *entry) {
	if !en.isOpen() || !en.holds() || w.yielder == nil {
		return
	}
	if w.wanted(en) != 0 {
		w.yielder.Yield(en.key)
	}
}
