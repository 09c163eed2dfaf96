package writegate

import (
	"sync"
	"sync/atomic"
)

// A Gate is what writes through one client of the storage pass. The zero Gate is ready,
// and nil is one that keeps nothing apart.
type Gate struct {
	mu    sync.RWMutex // held for reading by writes, for writing by who keeps them away
	begun atomic.Uint64
	ended atomic.Uint64
}

// Write calls write, which writes to the storage, or waits for that of others.
func (g *Gate) Write(write func() error) error {
	if g == nil {
		return write()
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.begun.Add(1)
	defer g.ended.Add(1)
	return write()
}

// Apart calls do once without a write beside it. It tries without keeping any away: if
// one was there and do had no error, undo is called, and do again while all wait. An
// error of do is final.
func (g *Gate) Apart(do func() error, undo func()) error {
	if g == nil {
		return do()
	}
	ended := g.ended.Load() // before begun, so that they differ if a write was there
	begun := g.begun.Load()
	if begun == ended {
		if err := do(); err != nil || g.begun.Load() == begun {
			return err
		}
		undo()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return do()
}
