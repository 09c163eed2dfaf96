package engine

import "dmxfs/locks"

// Break takes away what programs of this node hold of k through the handles,
// because an admin says so. The caller has made sure that they cannot go on
// under it, see fusefs. What waits through the handles goes on waiting. It
// returns what was lost.
func (e *Engine) Break(k locks.Key, handles []locks.HandleID, reason string) []LostLock {
	e.mu.Lock()
	defer e.mu.Unlock()
	en := e.entries[k]
	if en == nil {
		return nil
	}
	e.breaking = true
	defer func() { e.breaking = false }()
	var lost []LostLock
	for _, h := range handles {
		for _, t := range en.sortedTickets() {
			if t.held && t.Handle == h {
				lost = append(lost, LostLock{k, t.req.Path, t.Mode, t.Range, true, t.req.Program})
			}
		}
		if en.handles != nil {
			if t := en.handles[h]; t != nil && t.held {
				e.releaseOpen(en, t, reason)
			}
			continue
		}
		for _, id := range en.ownerIDs() {
			e.release(en, en.owners[id], locks.Whole, h, reason)
		}
	}
	return lost
}
