package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A daemon can be replaced by another process while programs hold locks and wait
// for some. The engine of the one is frozen, as between two epochs, and leaves what
// it has to the engine of the other one (legacy.go). That one makes the machines
// as they were, frozen too (heirs.go), so that the next epoch carries all over
// by the same State, Sync and Restore as any other. For the other members it is
// another node in the place of one that has gone: the view that adds it must be
// the one that drops its former self, otherwise somebody may have been granted
// what was held here. Who drives the engine knows that, and calls Expelled.
//
// What the old engine keeps for reuse is not left: permissions that no ticket uses
// end with every epoch. Nor is what it knows of caches: everything is renewed at
// the next grant.

// bequest leaves what there is to the process that succeeds this one.
type bequest struct {
	*base
	waiters  *waiters
	entries  *entries
	damages  *damages
	outboxes *outboxes
	queries  *queries
	tickets  *tickets
	holdings *holdings
	epochs   *epochs
}

// errNotNow is why Bequeath fails.
var errNotNow = errors.New("the locks of this node cannot be left to a successor now")

// bequeath is [Engine.Bequeath].
func (h *bequest) bequeath() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, en := range h.entries.snapshot() {
		h.holdings.giveUpAside(en)
	}
	if err := h.mayBequeath(); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotNow, err)
	}
	h.bequeathed, h.closed = true, true
	h.left.Store(true)
	h.epochs.stop()
	for _, t := range h.waiters.sorted() {
		if !h.waiters.has(t) {
			continue
		}
		if t.req.Try { // which is made anew: it has no place to keep
			h.tickets.withdraw(t, locks.ErrBequeathed, locks.ErrBequeathed.Error())
			continue
		}
		t.fail(locks.ErrBequeathed)
	}
	h.queries.fail(locks.ErrBequeathed)
	h.stated = true
	for _, en := range h.entries.all {
		en.machine.State()
	}
	l, now := h.describe(), time.Now()
	h.broadcast()
	return l.bytes(now), nil
}

// mayBequeath is an error if this is no moment at which the locks of this node can
// be told in full and the others have settled what they are.
func (h *bequest) mayBequeath() error {
	switch {
	case h.bequeathed:
		return locks.ErrBequeathed
	case h.closed:
		return errClosed
	case h.phase != active:
		return errors.New("the members are about to agree on a new view")
	case !h.o.Live(0):
		return errors.New("this node is not sure at the moment that it is still a member")
	case h.outboxes.flushing > 0:
		return errors.New("files are just being written out")
	}
	for _, en := range h.entries.all {
		if len(en.aside) > 0 {
			return fmt.Errorf("very many locks of %q are being given up", en.path)
		}
		if _, ok := en.machine.(locks.Heir); !ok {
			return fmt.Errorf("%q is served by %s, which cannot", en.path, en.alg.Name)
		}
		for _, t := range en.tickets {
			if t.req.broken != "" {
				return fmt.Errorf("an admin is taking a lock of %q away", en.path)
			}
		}
	}
	return nil
}

// describe is all that the successor has to know.
func (h *bequest) describe() *legacy {
	now := time.Now()
	l := &legacy{epoch: h.view.Epoch, self: h.view.Self, tenure: h.Tenure(), lastID: h.lastID, floor: h.entries.floor,
		moment: h.Moment(), newRules: h.newRules, serial: h.damages.serial, told: slices.SortedFunc(h.damages.told.keys(), locks.Key.Compare)}
	for k, alg := range h.entries.pinned {
		l.pinned = append(l.pinned, legacyPin{k, alg})
	}
	slices.SortFunc(l.pinned, func(a, b legacyPin) int { return a.key.Compare(b.key) })
	for _, w := range h.damages.own {
		l.words = append(l.words, legacyWord{w.key, w.serial, time.Duration(l.moment - w.at)})
	}
	for p, ks := range h.tickets.places.m {
		for _, k := range ks {
			l.places = append(l.places, legacyPlace{p, k.stamp, ago(now, k.since), ago(now, k.until.Add(-placeFor))})
		}
	}
	slices.SortFunc(l.places, func(a, b legacyPlace) int { return a.key.Compare(b.key) })
	reqs := map[*request]int{}
	for _, en := range h.entries.sorted() {
		if len(en.tickets) == 0 && !en.dirty {
			continue
		}
		k := legacyKey{key: en.key, path: en.path, algorithm: en.alg.Name, beside: h.beside(en), dirty: en.dirty,
			messages: en.messages, joined: en.gate.joined, machine: en.machine.(locks.Heir).Legacy(nil)}
		for _, t := range en.sortedTickets() {
			i, ok := reqs[t.req]
			if !ok {
				i = len(l.requests)
				reqs[t.req] = i
				l.requests = append(l.requests, t.req)
			}
			k.tickets = append(k.tickets, describeTicket(t, i, now))
		}
		l.keys = append(l.keys, k)
	}
	return l
}

func describeTicket(t *ticket, req int, now time.Time) legacyTicket {
	x := legacyTicket{id: t.ID, handle: t.Handle, mode: t.Mode, rng: t.Range, told: t.told, token: t.token, req: req}
	if x.state = stateOf(t); x.state >= legacyAsks {
		x.stamp, x.since = t.place(), ago(now, t.since)
	}
	return x
}

// stateOf is how far t is.
func stateOf(t *ticket) byte {
	switch {
	case t.underway:
		return legacyUnderway
	case t.held:
		return legacyHeld
	case t.asks:
		return legacyAsks
	}
	return legacyGated
}
