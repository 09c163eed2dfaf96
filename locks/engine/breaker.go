package engine

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// breaker takes locks away from programs, as an admin wants it.
type breaker struct {
	*base
	entries  *entries
	holdings *holdings
}

// condemn is [Engine.Condemn].
func (b *breaker) condemn(k locks.Key, handles []locks.HandleID, reason string) []LostLock {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries.all[k] == nil {
		return nil
	}
	found := newRows((*lostRow).compare)
	for _, t := range b.entries.all[k].tickets {
		if t.held && slices.Contains(handles, t.Handle) {
			t.req.broken = reason
			found.add(lostRow{t.ID, LostLock{k, t.req.Path, t.Mode, t.Range, true, t.req.Program}})
		}
		b.mu.breathe()
	}
	b.mu.Unlock()
	defer b.mu.Lock()
	return lostOf(found)
}

// errBroken is for who has not been told yet of what was taken away.
var errBroken = fmt.Errorf("%w: an admin broke it", locks.ErrLost)

// condemned reports whether o has something through h that an admin takes away.
// REQUIRES: mu held. It may let go of it in between.
func (b *breaker) condemned(en *entry, o *owner, h locks.HandleID) bool {
	for at := uint64(0); en.owners[o.id] == o; b.mu.breathe() {
		lo := o.search(func(t *ticket) bool { return t.Range.Start >= at })
		hi := min(lo+maxAtOnce, o.len())
		for t := range o.slice(lo, hi) {
			if at = t.Range.End; t.Handle == h && t.req.broken != "" {
				return true
			}
		}
		if hi == o.len() {
			return false
		}
	}
	return false
}

// breakLocks is [Engine.Break].
func (b *breaker) breakLocks(k locks.Key, handles []locks.HandleID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	en := b.entries.all[k]
	if en == nil {
		return
	}
	for _, h := range handles {
		broken := func(t *ticket) bool { return t.Handle == h && t.req.broken != "" }
		if en.isOpen() {
			b.holdings.undoAll(en, uint64(h), errBroken, "", broken)
			if t := en.handles[h]; t != nil && t.held && t.req.broken != "" {
				b.holdings.releaseOpen(en, t, t.req.broken)
			}
			continue
		}
		for _, id := range en.ownersThrough(h) {
			b.holdings.undoAll(en, uint64(id), errBroken, "", broken)
			if o := en.owners[id]; o != nil && b.condemned(en, o, h) {
				b.holdings.releaseThrough(en, o, h, "an admin broke another lock of its open file")
			}
		}
	}
	b.holdings.giveUpAside(en)
}
