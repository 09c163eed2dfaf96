package engine

import (
	"errors"
	"fmt"
	"slices"

	"dmxfs/locks"
	"dmxfs/locks/posix"
)

// A grant is not the last word: what is cached of the file may have to be made
// good first, which can fail, and while the node is suspended its program is
// told nothing, and can be interrupted. Then it must have what it had before.
// But it may have had some of it, in the same mode or another one; and another
// thread of it may be told meanwhile of what it asked for, or give something up.

// pendingGrant is a grant of which the program has not been told yet.
type pendingGrant struct {
	req *request
	// told is what the owner knows to have within req.Range; but where that is
	// very much, and nothing has happened since, most of it is in what it had
	// before, which is not changed any more.
	told   told
	before [][]*ticket
}

// knows is d.told.
func (d *pendingGrant) knows() *told {
	for _, ts := range d.before {
		for _, t := range ts {
			d.told.add(t.Mode, t.Range.Intersect(d.req.Range))
		}
	}
	d.before = nil
	return &d.told
}

// told are bytes that a program knows to have, by mode; none in both.
type told struct{ read, write locks.Ranges }

// add is has for what the others do not overlap.
func (x *told) add(m locks.Mode, r locks.Range) {
	if m == locks.Write {
		x.write.Insert(r)
	} else {
		x.read.Insert(r)
	}
}

func (x *told) has(m locks.Mode, rs locks.Ranges) {
	x.read, x.write = x.read.Minus(rs), x.write.Minus(rs)
	if m == locks.Write {
		x.write = x.write.Union(rs)
	} else {
		x.read = x.read.Union(rs)
	}
}

// told is what o holds within r.
func (o *owner) told(r locks.Range) (x told) {
	lo, hi := o.window(r)
	for t := range o.slice(lo, hi) { // by offset
		x.add(t.Mode, t.Range.Intersect(r))
	}
	return x
}

// delivers is called when t has been granted, before it is placed.
func (en *entry) delivers(t *ticket) {
	d := &pendingGrant{req: t.req}
	if o := en.owners[t.req.Owner]; o != nil {
		if lo, hi := o.window(t.req.Range); hi-lo > 2*maxAtOnce+2 {
			// All but the first and the last will be set aside; these may be cut.
			for _, end := range []*ticket{o.at(lo), o.at(hi - 1)} {
				d.told.add(end.Mode, end.Range.Intersect(t.req.Range))
			}
			d.before = o.snapshot(lo+1, hi-1)
		} else {
			d.told = o.told(t.req.Range)
		}
	}
	en.deliveries = append(en.deliveries, d)
}

// undelivered are the deliveries to an owner.
func (en *entry) undelivered(id locks.OwnerID) (ds []*pendingGrant) {
	for _, d := range en.deliveries {
		if d.req.Owner == id {
			ds = append(ds, d)
		}
	}
	return ds
}

func (en *entry) untold(id locks.OwnerID) bool {
	return slices.ContainsFunc(en.deliveries, func(d *pendingGrant) bool { return d.req.Owner == id })
}

// tells notes that the owner of req knows of it.
func (en *entry) tells(req *request) {
	if en.handles != nil {
		return
	}
	en.forgetDelivery(req)
	for _, d := range en.undelivered(req.Owner) {
		d.knows().has(req.Mode, locks.RangesOf(req.Range).Clip(d.req.Range))
	}
}

// released notes that o has less than before.
func (en *entry) released(o *owner) {
	for _, d := range en.undelivered(o.id) {
		held := o.told(d.req.Range)
		if lost := locks.RangesOf(d.req.Range).Minus(held.read.Union(held.write)); !lost.Empty() {
			x := d.knows()
			x.read, x.write = x.read.Minus(lost), x.write.Minus(lost)
		}
	}
}

func (en *entry) delivery(req *request) *pendingGrant {
	for _, d := range en.deliveries {
		if d.req == req {
			return d
		}
	}
	return nil
}

func (en *entry) forgetDelivery(req *request) *pendingGrant {
	for i, d := range en.deliveries {
		if d.req == req {
			en.deliveries = slices.Delete(en.deliveries, i, i+1)
			return d
		}
	}
	return nil
}

// errRenewed: what is cached of the file has been made good, and the request
// has to be looked at again.
var errRenewed = errors.New("engine: renewed")

// renew makes good what is cached of the file of en, for r.
// REQUIRES: e.mu held; it is held again when renew returns.
func (e *Engine) renew(en *entry, r *locks.Request) error {
	for en.fresh != en.stale && !r.Blind {
		seen := en.stale
		e.mu.Unlock()
		r.WillWait()
		err := e.o.Files.Refresh(en.key)
		e.mu.Lock()
		if err == nil {
			en.fresh = max(en.fresh, seen)
		} else if en.fresh < seen { // else another request has done it
			return fmt.Errorf("renew what is cached of %q: %w", r.Path, err)
		}
	}
	return nil
}

// deliver makes the data behind a grant good and hands it to the caller, who
// asked by r. It releases e.mu.
//
// A process that was stopped meanwhile may go on when the lock has long been
// another node's, and not know it yet. So the clock is asked last.
func (e *Engine) deliver(cancel <-chan struct{}, en *entry, t *ticket, r *locks.Request) (locks.Grant, error) {
	g := locks.Grant{Token: t.token, Tenure: t.tenure}
	if err := e.renew(en, r); err != nil {
		// What would be read may be old: better no lock than a wrong one.
		e.undo(en, t, "released: what is cached of the file could not be renewed: "+err.Error())
		e.giveUpAside(en)
		e.mu.Unlock()
		return locks.Grant{}, err
	}
	if !r.Blind {
		if err := e.takeDamage(en.key, r.Path); err != nil {
			e.undo(en, t, "released: "+err.Error())
			e.giveUpAside(en)
			e.mu.Unlock()
			return locks.Grant{}, err
		}
	}
	e.mu.Unlock()
	var err error
	if !e.o.Live(0) {
		r.WillWait()
		err = e.Admit(cancel, g.Tenure)
	}
	e.mu.Lock()
	if err != nil {
		e.undo(en, t, "interrupted before its program was told")
		e.giveUpAside(en)
		e.mu.Unlock()
		return locks.Grant{}, err
	}
	en.tells(t.req)
	e.giveUpAside(en)
	e.mu.Unlock()
	if e.Tenure() != g.Tenure {
		return locks.Grant{}, locks.ErrLost
	}
	return g, nil
}

// undo takes back the grant of t, of which its program has not been told: it
// has what it had before, and what it was told of meanwhile.
// REQUIRES: e.mu held. It may let go of it in between.
func (e *Engine) undo(en *entry, t *ticket, reason string) {
	gone := func() bool { return e.entries[en.key] != en || e.left.Load() || e.Tenure() != t.tenure }
	if gone() {
		en.forgetDelivery(t.req)
		return // that is lost anyway
	}
	if en.handles != nil {
		if en.handles[t.Handle] == t { // else it was given up meanwhile
			e.releaseOpen(en, t, reason)
		}
		return
	}
	d := en.delivery(t.req)
	d.knows()
	// What is told meanwhile is noted in d as well, until this is done.
	for at := d.req.Range.Start; !gone(); e.mu.breathe() {
		r := d.untold(at, en.otherwise(d))
		if r.Empty() {
			break
		}
		if o := en.owners[d.req.Owner]; o != nil {
			e.release(en, o, r, 0, reason)
		}
		at = r.End
	}
	for at := d.req.Range.Start; d.req.Mode == locks.Write && !gone(); e.mu.breathe() {
		r, ok := d.told.read.Next(at)
		if !ok {
			break
		}
		at = r.End
		for _, r := range locks.RangesOf(r).Minus(en.otherwise(d)) {
			lesser := &ticket{
				Piece: posix.Piece{Part: locks.Part{ID: locks.TicketID(e.id()), Mode: locks.Read, Range: r}, Handle: d.req.Handle},
				entry: en, req: d.req, token: t.token, tenure: t.tenure,
			}
			d.req.pieces++
			e.keep(lesser)
			e.place(lesser)
		}
	}
	en.forgetDelivery(t.req)
}

// otherwise is what other requests of the owner of d have been granted, and were
// not told of: that is theirs, as they were placed.
func (en *entry) otherwise(d *pendingGrant) (rs locks.Ranges) {
	for _, o := range en.undelivered(d.req.Owner) {
		if o != d {
			rs = rs.Union(locks.RangesOf(o.req.Range).Clip(d.req.Range))
		}
	}
	return rs
}

// untold is the first part of the range of d, at or behind x, that its owner has
// not been told of and that is not in except.
func (d *pendingGrant) untold(x uint64, except locks.Ranges) locks.Range {
	for again := true; again; {
		again = false
		for _, s := range []locks.Ranges{d.told.read, d.told.write, except} {
			if next, ok := s.Next(x); ok && next.Start <= x {
				x, again = next.End, true
			}
		}
	}
	r := locks.Range{Start: x, End: d.req.Range.End}
	for _, s := range []locks.Ranges{d.told.read, d.told.write, except} {
		if next, ok := s.Next(x); ok {
			r.End = min(r.End, next.Start)
		}
	}
	return r
}
