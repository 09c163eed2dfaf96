package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/posix"
)

// holdings are what owners have of files: a grant takes its place among it, and
// what is given up leaves it. What machines know of it follows.
type holdings struct {
	*base
	journal  *journal
	ledger   *ledger
	quota    *quota
	entries  *entries
	stepper  *stepper
	barriers *barriers
	askBacks *askBacks
}

// replace is Machine.Replace for what the machine knows of.
func (hs *holdings) replace(en *entry, old []locks.TicketID, parts []locks.Part) {
	en.gave = true
	if hs.beside(en) {
		hs.barriers.lift(en)
		return
	}
	if hs.stepper.step(en, func(turn *locks.Turn) { en.machine.Replace(old, parts, turn) }) {
		hs.askBacks.gaveAway(en)
	}
}

// has reports whether o has every byte of r in mode m or a stronger one, among
// what it holds at [lo, hi).
func (o *owner) has(lo, hi int, m locks.Mode, r locks.Range) bool {
	return posix.Has(pieces(o.slice(lo, hi)), m, r)
}

func (o *owner) pieces(lo, hi int) []posix.Piece {
	return slices.AppendSeq(make([]posix.Piece, 0, hi-lo), pieces(o.slice(lo, hi)))
}

// place puts a ticket among what its owner holds: it replaces what it covers
// and joins what it touches. Either the machine has granted it, or all of it is
// covered by what the owner holds in the same or a stronger mode.
func (hs *holdings) place(t *ticket) {
	en, o := t.entry, t.entry.owner(t.req.Owner)
	o.knows(t.req.asker)
	lo, hi := o.window(t.Range)
	if t.held && hi-lo > maxAtOnce { // if it is not, the machine has only what it is cut from
		hs.setAside(en, o, t.Range, fmt.Sprintf("replaced by request %d of the same owner", t.req.id))
		lo, hi = o.window(t.Range)
	}
	if lo == hi {
		o.replace(lo, lo, t)
		en.setOwner(o)
		hs.ledger.holds(t)
		return
	}
	pieces := posix.Place(o.pieces(lo, hi), t.Piece)
	hs.rewrite(en, o, lo, hi, t, pieces, fmt.Sprintf("replaced or joined by request %d of the same owner", t.req.id))
}

// change is what happens to a ticket in rewrite.
type change struct {
	t   *ticket
	was posix.Piece
}

// rewrite makes pieces of what o holds at [lo, hi), and of extra if that is
// not nil, see place. Each piece is cut from one of these, or is one of them
// grown over others. What is lost by it is journaled with reason.
func (hs *holdings) rewrite(en *entry, o *owner, lo, hi int, extra *ticket, pieces []posix.Piece, reason string) {
	var changes []change
	from := make(map[locks.TicketID]*ticket, hi-lo+1)
	same := make(map[posix.Piece]bool, len(pieces))
	for _, p := range pieces {
		same[p] = true
	}
	look := func(t *ticket) {
		from[t.ID] = t
		if !same[t.Piece] {
			changes = append(changes, change{t, t.Piece})
		}
	}
	for t := range o.slice(lo, hi) {
		look(t)
	}
	if extra != nil {
		look(extra)
	}
	var shrunk []*ticket
	keep := make([]*ticket, len(pieces))
	kept := make(map[*ticket]bool, len(pieces))
	var parts []locks.Part
	for i, p := range pieces {
		t := hs.source(en, from, changes, &p)
		kept[t] = true
		shrinks := hs.ledger.has(t) && t != extra && t.Range.Contains(p.Range)
		changed := t.Piece != p || t == extra
		if t.Piece != p || !t.held {
			t.Piece = p
			parts = append(parts, p.Part)
		}
		switch keep[i] = t; {
		case !changed && hs.ledger.has(t):
		case shrinks:
			shrunk = append(shrunk, t)
		default:
			hs.ledger.holds(t)
		}
	}
	o.replace(lo, hi, keep...)
	for _, t := range shrunk {
		hs.ledger.holds(t)
	}
	var old []locks.TicketID
	for _, c := range changes {
		if c.t.held {
			old = append(old, c.was.ID)
		}
		if !kept[c.t] {
			hs.quota.lose(c.t)
			c.t.req.pieces--
		}
	}
	hs.recordReleased(en, changes, extra, keep, reason)
	if o.len() == 0 {
		delete(en.owners, o.id)
	}
	for _, t := range keep {
		en.took(t)
	}
	if len(old) > 0 {
		hs.replace(en, old, parts)
	}
}

// recordReleased journals what a rewrite took from each request.
func (hs *holdings) recordReleased(en *entry, changes []change, extra *ticket, keep []*ticket, reason string) {
	type row struct {
		req *request
		ev  event
	}
	var rows []row
	last := map[*request]int{}
	stays := map[*request][]*ticket{}
	for _, t := range keep {
		stays[t.req] = append(stays[t.req], t)
	}
	for _, c := range changes {
		if c.t == extra {
			continue // it only grew
		}
		left := locks.RangesOf(c.was.Range)
		for _, t := range stays[c.t.req] {
			left = left.Sub(t.Range)
		}
		for _, r := range left {
			last[c.t.req] = len(rows)
			rows = append(rows, row{c.t.req, event{rng: r, reason: reason, token: c.t.token}})
		}
	}
	for i, r := range rows {
		r.ev.final = r.req.pieces == 0 && last[r.req] == i
		hs.journal.record(Released, en, r.req, r.ev)
	}
}

// source is the ticket that becomes p: the one with its ID. The upper remnant
// of one that is cut in two has none yet; it is made here.
func (hs *holdings) source(en *entry, from map[locks.TicketID]*ticket, changes []change, p *posix.Piece) *ticket {
	if t := from[p.ID]; t != nil {
		return t
	}
	for _, c := range changes {
		if c.was.Mode == p.Mode && c.was.Handle == p.Handle && c.was.Range.Contains(p.Range) {
			p.ID = locks.TicketID(hs.id())
			t := newTicket(en, c.t.req, *p)
			t.token, t.tenure = c.t.token, c.t.tenure
			c.t.req.pieces++
			hs.quota.keep(t)
			return t // held is false: it is new to the machine
		}
	}
	panic("engine: a piece of nothing")
}

// lose takes t from its owner for good, and journals that.
func (hs *holdings) lose(t *ticket, reason string) {
	hs.quota.lose(t)
	t.req.pieces--
	hs.journal.record(Released, t.entry, t.req, event{rng: t.Range, reason: reason, token: t.token, final: t.req.pieces == 0})
}

// releaseAll is release of the one ticket t that o holds, as nearly always.
func (hs *holdings) releaseAll(en *entry, o *owner, t *ticket, reason string) {
	hs.lose(t, reason)
	o.replace(0, 1)
	delete(en.owners, o.id)
	hs.replace(en, []locks.TicketID{t.ID}, nil)
	hs.entries.settle(en)
}

// release gives up what o holds of r, through handle if that is not zero.
func (hs *holdings) release(en *entry, o *owner, r locks.Range, handle locks.HandleID, reason string) {
	lo, hi := o.window(r)
	if lo == hi {
		return
	}
	if t := o.at(0); o.len() == 1 && r.Contains(t.Range) && (handle == 0 || handle == t.Handle) {
		hs.releaseAll(en, o, t, reason)
		return
	}
	if handle == 0 {
		hs.setAside(en, o, r, reason)
	}
	lo, hi = o.window(r)
	held := o.pieces(lo, hi)
	var pieces []posix.Piece
	if handle == 0 {
		pieces = posix.Clear(held, r)
	} else {
		pieces = slices.DeleteFunc(slices.Clone(held), func(p posix.Piece) bool { return p.Handle == handle })
	}
	hs.rewrite(en, o, lo, hi, nil, pieces, reason)
	hs.entries.settle(en)
}

// releaseThrough is release of what o has through handle, wherever, part by part:
// nothing new comes through a handle that is closed.
// REQUIRES: mu held. It may let go of it in between.
func (hs *holdings) releaseThrough(en *entry, o *owner, handle locks.HandleID, reason string) {
	for at := uint64(0); hs.entries.all[en.key] == en && en.owners[o.id] == o && !hs.left.Load(); hs.mu.breathe() {
		lo := o.search(func(t *ticket) bool { return t.Range.End > at })
		if lo == o.len() {
			return
		}
		part := locks.Range{Start: o.at(lo).Range.Start, End: locks.MaxOffset}
		// Few at a time: of very many none is in the processor's cache, and what
		// is left of them is looked at as well as what goes.
		if hi := lo + max(maxAtOnce/4, 1); hi < o.len() {
			part.End = o.at(hi).Range.Start
		}
		hs.release(en, o, part, handle, reason)
		at = part.End
	}
}

// releaseOpen gives up the lock of an open file.
func (hs *holdings) releaseOpen(en *entry, t *ticket, reason string) {
	if en.handles[t.Handle] == t {
		delete(en.handles, t.Handle)
	}
	hs.lose(t, reason)
	hs.replace(en, []locks.TicketID{t.ID}, nil)
	hs.entries.settle(en)
}

// share is [Engine.Share].
func (hs *holdings) share(k locks.Key, h locks.HandleID, why string) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	en := hs.entries.all[k]
	if en == nil || !en.isOpen() || hs.left.Load() || !en.alg.Shared || hs.beside(en) {
		return false
	}
	old := en.handles[h]
	switch {
	case old == nil || old.req.broken != "":
		return false
	case old.Mode == locks.Read:
		return true
	}
	now, was := time.Now(), old.req
	req := &request{id: hs.id(), asker: was.asker, Handle: was.Handle, Range: was.Range, Patience: was.Patience, Mode: locks.Read,
		Try: was.Try, Blind: was.Blind, asked: now, granted: now, messages: uint32(en.messages), pieces: 1}
	t := newTicket(en, req, posix.Piece{Part: locks.Part{ID: locks.TicketID(hs.id()), Mode: locks.Read, Range: old.Range}, Handle: h})
	t.token, t.tenure = old.token, old.tenure
	hs.quota.keep(t)
	en.took(t)
	hs.ledger.holds(t) // before the other one goes
	hs.quota.lose(old)
	old.req.pieces--
	en.setHandle(h, t)
	hs.journal.record(Requested, en, req, event{rng: t.Range})
	hs.journal.record(Granted, en, req, event{rng: t.Range, token: t.token})
	hs.journal.record(Released, en, old.req, event{rng: old.Range, reason: why, token: old.token, final: true})
	hs.replace(en, []locks.TicketID{old.ID}, []locks.Part{t.Part})
	return true
}
