package engine

import (
	"fmt"
	"slices"

	"dmxfs/locks"
)

// Condemn says that an admin takes away what programs of this node hold of k
// through the handles, which it returns. From now on the end of those locks is
// a loss, for the journal: the caller keeps the programs from going on under
// them, and then one may give its lock up before Break frees it. An empty
// reason takes that back.
func (e *Engine) Condemn(k locks.Key, handles []locks.HandleID, reason string) []LostLock {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.entries[k] == nil {
		return nil
	}
	found := newRows((*lostRow).compare)
	for _, t := range e.entries[k].tickets {
		if t.held && slices.Contains(handles, t.Handle) {
			t.req.broken = reason
			found.add(lostRow{t.ID, LostLock{k, t.req.Path, t.Mode, t.Range, true, t.req.Program}})
		}
		e.mu.breathe()
	}
	e.mu.Unlock()
	defer e.mu.Lock()
	return lostOf(found)
}

// errBroken is for who has not been told yet of what was taken away.
var errBroken = fmt.Errorf("%w: an admin broke it", locks.ErrLost)

// ownersThrough are the owners that took something through h, with others.
func (en *entry) ownersThrough(h locks.HandleID) (ids []locks.OwnerID) {
	if en.key.Class == locks.Flock {
		return []locks.OwnerID{locks.OwnerID(h)} // the owner of a flock is the open file
	}
	for _, id := range en.through[h].sorted() {
		ids = append(ids, locks.OwnerID(id))
	}
	return ids
}

// condemned reports whether o has something through h that an admin takes away.
// REQUIRES: e.mu held. It may let go of it in between.
func (e *Engine) condemned(en *entry, o *owner, h locks.HandleID) bool {
	for at := uint64(0); en.owners[o.id] == o; e.mu.breathe() {
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

// Break frees what is still held of what Condemn was told of. What waits
// through the handles goes on waiting.
func (e *Engine) Break(k locks.Key, handles []locks.HandleID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	en := e.entries[k]
	if en == nil {
		return
	}
	for _, h := range handles {
		broken := func(t *ticket) bool { return t.Handle == h && t.req.broken != "" }
		if en.handles != nil {
			e.undoAll(en, uint64(h), errBroken, "", broken)
			if t := en.handles[h]; t != nil && t.held && t.req.broken != "" {
				e.releaseOpen(en, t, t.req.broken)
			}
			continue
		}
		for _, id := range en.ownersThrough(h) {
			e.undoAll(en, uint64(id), errBroken, "", broken)
			if o := en.owners[id]; o != nil && e.condemned(en, o, h) {
				e.releaseThrough(en, o, h, "an admin broke another lock of its open file")
			}
		}
	}
	e.giveUpAside(en)
}
