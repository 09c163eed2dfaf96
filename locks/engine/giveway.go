package engine

import (
	"time"

	"dmxfs/locks"
	"dmxfs/locks/posix"
)

// Wanted is the mode in which the first of those wants a lock of k, another
// member or another owner on this one, from whom a lock of this node keeps it.
// It is 0 if there is nobody.
func (e *Engine) Wanted(k locks.Key) locks.Mode {
	e.mu.Lock()
	defer e.mu.Unlock()
	if en := e.entries[k]; en != nil {
		return e.wanted(en)
	}
	return 0
}

func (e *Engine) wanted(en *entry) locks.Mode {
	if e.beside(en) {
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

// tellWanted tells the files, after a turn, if an open lock is wanted.
func (e *Engine) tellWanted(en *entry) {
	if en.handles == nil || !en.holds() || e.yielder == nil {
		return
	}
	if e.wanted(en) != 0 {
		e.yielder.Yield(en.key)
	}
}

// Share makes the open lock of h one for reading, if it is one for writing:
// other nodes may read what was written under it, and no other one writes. It
// reports whether h has a lock for reading now. A request to write through h
// replaces that when it is granted.
func (e *Engine) Share(k locks.Key, h locks.HandleID, why string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	en := e.entries[k]
	if en == nil || en.handles == nil || e.left.Load() || !en.alg.Shared || e.beside(en) {
		return false
	}
	old := en.handles[h]
	switch {
	case old == nil || old.req.broken != "":
		return false
	case old.Mode == locks.Read:
		return true
	}
	req := &request{id: e.id(), Request: old.req.Request, asked: time.Now(), messages: en.messages, pieces: 1}
	req.Mode, req.granted = locks.Read, req.asked
	t := &ticket{
		Piece: posix.Piece{Part: locks.Part{ID: locks.TicketID(e.id()), Mode: locks.Read, Range: old.Range}, Handle: h},
		entry: en, req: req, held: true, token: old.token, tenure: old.tenure,
	}
	e.keep(t)
	en.took(t)
	e.lose(old)
	old.req.pieces--
	en.handles[h] = t
	e.record(Requested, en, req, event{rng: t.Range})
	e.record(Granted, en, req, event{rng: t.Range, token: t.token})
	e.record(Released, en, old.req, event{rng: old.Range, reason: why, token: old.token, final: true})
	e.replace(en, []locks.TicketID{old.ID}, []locks.Part{t.Part})
	return true
}
