package engine

import (
	"time"

	"dmxfs/locks"
	"dmxfs/locks/posix"
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
	if en.handles == nil || !en.holds() || w.yielder == nil {
		return
	}
	if w.wanted(en) != 0 {
		w.yielder.Yield(en.key)
	}
}

// share is [Engine.Share].
func (hs *holdings) share(k locks.Key, h locks.HandleID, why string) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	en := hs.entries.all[k]
	if en == nil || en.handles == nil || hs.left.Load() || !en.alg.Shared || hs.beside(en) {
		return false
	}
	old := en.handles[h]
	switch {
	case old == nil || old.req.broken != "":
		return false
	case old.Mode == locks.Read:
		return true
	}
	req := &request{id: hs.id(), Request: old.req.Request, asked: time.Now(), messages: en.messages, pieces: 1}
	req.Mode, req.granted = locks.Read, req.asked
	t := &ticket{
		Piece: posix.Piece{Part: locks.Part{ID: locks.TicketID(hs.id()), Mode: locks.Read, Range: old.Range}, Handle: h},
		entry: en, req: req, held: true, token: old.token, tenure: old.tenure,
	}
	hs.quota.keep(t)
	en.took(t)
	hs.quota.lose(old)
	old.req.pieces--
	en.handles[h] = t
	hs.journal.record(Requested, en, req, event{rng: t.Range})
	hs.journal.record(Granted, en, req, event{rng: t.Range, token: t.token})
	hs.journal.record(Released, en, old.req, event{rng: old.Range, reason: why, token: old.token, final: true})
	hs.replace(en, []locks.TicketID{old.ID}, []locks.Part{t.Part})
	return true
}
