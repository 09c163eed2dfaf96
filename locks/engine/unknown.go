package engine

import (
	"cmp"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// giveUpUnknown is [Engine.GiveUpUnknown].
func (cl *calls) giveUpUnknown(known func(locks.Key, locks.HandleID) bool, why string) (given int) {
	type through struct {
		key    locks.Key
		handle locks.HandleID
	}
	found := map[through]struct{}{}
	cl.mu.Lock()
	for _, en := range cl.entries.all {
		if cl.entries.all[en.key] != en {
			break // all were lost meanwhile
		}
		for _, t := range en.tickets {
			found[through{en.key, t.Handle}] = struct{}{}
			if cl.mu.breathe() && cl.entries.all[en.key] != en {
				break
			}
		}
	}
	cl.mu.Unlock()
	var gone []through
	for x := range found {
		if !known(x.key, x.handle) {
			gone = append(gone, x)
		}
	}
	slices.SortFunc(gone, func(a, b through) int { return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.handle, b.handle)) })
	for _, x := range gone {
		cl.unlockHandle(x.key, x.handle, why)
	}
	return len(gone)
}
