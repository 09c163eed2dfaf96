package engine

import (
	"github.com/dmxfs/dmxfs/locks"
)

// A program can have 250,000 pieces of a file, and give them up by one call: at
// its end, or since one lock of the whole file takes their place. To tell the
// machine and the journal of each takes a second. So its owner loses them at
// once, and the call that did it gives them up in parts, and lets others have the
// engine in between. It returns when all is done: then they are free. Until then
// the machine holds them, which is more than their owner has, and never less.

// maxAtOnce is how many pieces are given up at a time. Tests make it smaller.
var maxAtOnce = 256

// aside is pieces that their owner does not have any more.
type aside struct {
	runs   [][]*ticket
	reason string
}

// setAside takes what o holds within r from it, to be given up later, if it is
// much.
func (hs *holdings) setAside(en *entry, o *owner, r locks.Range, reason string) {
	lo, hi := o.window(r)
	for lo < hi && !r.Contains(o.at(lo).Range) {
		lo++
	}
	for lo < hi && !r.Contains(o.at(hi-1).Range) {
		hi--
	}
	if hi-lo <= maxAtOnce {
		return
	}
	en.aside = append(en.aside, aside{o.cut(lo, hi), reason})
	if o.len() == 0 {
		delete(en.owners, o.id)
	}
}

// giveUpAside gives up what was set aside of en, whoever did it.
// REQUIRES: mu held. It lets go of it in between.
func (hs *holdings) giveUpAside(en *entry) {
	for len(en.aside) > 0 && hs.entries.all[en.key] == en && !hs.left.Load() {
		last := &en.aside[len(en.aside)-1]
		// From behind: who waits for all of the file looks at what is held of it
		// from the beginning.
		run, reason := &last.runs[len(last.runs)-1], last.reason
		n := max(len(*run)-maxAtOnce, 0)
		part := (*run)[n:]
		if *run = (*run)[:n]; n == 0 {
			if last.runs = last.runs[:len(last.runs)-1]; len(last.runs) == 0 {
				if en.aside = en.aside[:len(en.aside)-1]; len(en.aside) == 0 {
					en.aside = nil
				}
			}
		}
		ids := make([]locks.TicketID, len(part))
		for i, t := range part {
			ids[i] = t.ID
			hs.lose(t, reason)
		}
		hs.replace(en, ids, nil)
		hs.entries.settle(en)
		if len(en.aside) > 0 {
			hs.mu.Unlock()
			hs.journal.pace(true)
			hs.mu.yield()
			hs.mu.Lock()
		}
	}
}
