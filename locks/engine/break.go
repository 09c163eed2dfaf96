package engine

import (
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
	var lost []LostLock
	if en := e.entries[k]; en != nil {
		for _, t := range en.sortedTickets() {
			if t.held && slices.Contains(handles, t.Handle) {
				t.req.broken = reason
				lost = append(lost, LostLock{k, t.req.Path, t.Mode, t.Range, true, t.req.Program})
			}
		}
	}
	return lost
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
		if en.handles != nil {
			if t := en.handles[h]; t != nil && t.held && t.req.broken != "" {
				e.releaseOpen(en, t, t.req.broken)
			}
			continue
		}
		for _, id := range en.ownerIDs() {
			o := en.owners[id]
			if slices.ContainsFunc(o.held, func(t *ticket) bool { return t.Handle == h && t.req.broken != "" }) {
				e.release(en, o, locks.Whole, h, "an admin broke another lock of its open file")
			}
		}
	}
	e.giveUpAside(en)
}
