package engine

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// A grant is not the last word: what is cached of the file may have to be made
// good first, which can fail, and while the node is suspended its program is
// told nothing, and can be interrupted. Then it must have what it had before, all
// of it and in the same modes: nobody gives up W on a byte for an R that fails.
//
// So a ticket that was granted is on its way first, beside what its owner has.
// The machine holds both, which is more than the owner knows of, and never less;
// tickets of one owner do not stand in each other's way. When the program is told,
// it takes its place among what the owner has, and what it covers there goes. If
// the program cannot be told it goes by itself, and nothing else has changed.
//
// What other threads of the program do meanwhile comes before it. Only if they
// give up all of what it is for, as by closing the file, it was granted before
// that, and goes with the rest.

// deliveredTo is the key under which tickets on their way are found: what they will replace
// is of the same owner, in class Open of the same open file.
func (en *entry) deliveredTo(t *ticket) uint64 {
	if en.key.Class == locks.Open {
		return uint64(t.Handle)
	}
	return uint64(t.req.Owner)
}

// beginDelivery puts t, which was granted, on its way to its program.
func (en *entry) beginDelivery(t *ticket) {
	if en.underway == nil {
		en.underway = map[uint64][]*ticket{}
	}
	t.underway = true
	en.underway[en.deliveredTo(t)] = append(en.underway[en.deliveredTo(t)], t)
}

// endDelivery takes t from those on their way. It is false if something else did.
func (en *entry) endDelivery(t *ticket) bool {
	if !t.underway {
		return false
	}
	t.underway = false
	without(en.underway, en.deliveredTo(t), t)
	return true
}

// undo gives up t, which is on its way.
func (hs *holdings) undo(en *entry, t *ticket, reason string) {
	en.endDelivery(t)
	hs.lose(t, reason)
	hs.replace(en, []locks.TicketID{t.ID}, nil)
	hs.entries.settle(en)
}

// undoAll gives up the tickets on their way to one that which selects. Its
// programs are told err; nil: that they have had it. What was lost meanwhile, when
// who calls let go of mu, stays lost.
func (hs *holdings) undoAll(en *entry, to uint64, err error, reason string, which func(*ticket) bool) {
	for _, t := range slices.Clone(en.underway[to]) {
		if t.underway && !hs.gone(en, t) && which(t) {
			t.own().err = err
			hs.undo(en, t, reason)
		}
	}
}

// tell lets the program of t have it: it takes its place.
func (hs *holdings) tell(en *entry, t *ticket) {
	switch {
	case hs.gone(en, t) || !en.endDelivery(t):
	case !en.isOpen():
		t.waiting = &notWaiting
		hs.place(t)
	default:
		t.waiting = &notWaiting
		old := en.handles[t.Handle]
		en.setHandle(t.Handle, t)
		hs.ledger.holds(t)
		if old != nil {
			hs.releaseOpen(en, old, fmt.Sprintf("replaced by request %d of the same open file", t.req.id))
		}
	}
}

// gone reports whether t, which was granted, is no longer part of the engine's
// state, or stands for good.
func (hs *holdings) gone(en *entry, t *ticket) bool {
	return hs.entries.all[en.key] != en || hs.left.Load() || hs.Tenure() != t.tenure
}

// refresh makes good what is cached of the file of en, for r.
// REQUIRES: mu held; it is held again when refresh returns.
func (cl *calls) refresh(en *entry, r *locks.Request) error {
	for en.fresh != en.stale && !r.Blind {
		seen := en.stale
		cl.mu.Unlock()
		r.WillWait()
		err := cl.o.Files.Refresh(en.key)
		cl.mu.Lock()
		if err == nil {
			en.fresh = max(en.fresh, seen)
		} else if en.fresh < seen { // else another request has done it
			return fmt.Errorf("refresh what is cached of %q: %w", r.Path, err)
		}
	}
	return nil
}

// deliver makes the data behind a grant good and hands it to the caller, who
// asked by r. It releases mu.
//
// A process that was stopped meanwhile may go on when the lock has long been
// another node's, and not know it yet. So the clock is asked last.
func (cl *calls) deliver(cancel <-chan struct{}, en *entry, t *ticket, r *locks.Request) (locks.Grant, error) {
	defer cl.mu.Unlock()
	g := locks.Grant{Token: t.token, Tenure: t.tenure}
	reason := ""
	// What would be read may be old: better no lock than a wrong one.
	err := cl.refresh(en, r)
	if err != nil {
		reason = "released: what is cached of the file could not be refreshed: " + err.Error()
	} else if !r.Blind {
		if err = cl.damages.take(en.key, r.Path); err != nil {
			reason = "released: " + err.Error()
		}
	}
	if err == nil {
		reason = "interrupted before its program was told"
		cl.mu.Unlock()
		if !cl.o.Live(0) {
			r.WillWait()
			err = cl.Admit(cancel, g.Tenure)
		}
		cl.mu.Lock()
	}
	if cl.bequeathed && t.underway {
		return locks.Grant{}, locks.ErrBequeathed // it is on its way still
	}
	if err != nil {
		if t.underway && !cl.holdings.gone(en, t) {
			cl.holdings.undo(en, t, reason)
		}
		return locks.Grant{}, err
	}
	if t.err != nil {
		return locks.Grant{}, t.err
	}
	cl.holdings.tell(en, t)
	cl.holdings.giveUpAside(en)
	if cl.Tenure() != g.Tenure {
		return locks.Grant{}, locks.ErrLost
	}
	return g, nil
}
