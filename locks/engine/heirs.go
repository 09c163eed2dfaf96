package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/posix"
)

// claimTime is how long, of an active epoch, a ticket that was taken over waits for
// a call that goes on with it. The mount makes them at once.
const claimTime = locks.Moment(10 * time.Second)

// claim is by what a call finds the ticket of its former self.
type claim struct {
	key    locks.Key
	owner  locks.OwnerID
	handle locks.HandleID
	mode   locks.Mode
	rng    locks.Range
	try    bool
}

func claimOf(r *locks.Request) claim { return claim{r.Key, r.Owner, r.Handle, r.Mode, r.Range, r.Try} }

func (r *request) claim() claim { return claim{r.Key, r.Owner, r.Handle, r.Mode, r.Range, r.Try} }

// heirs take over what another process has left.
type heirs struct {
	*base
	alarm    *alarm
	ledger   *ledger
	quota    *quota
	waiters  *waiters
	entries  *entries
	damages  *damages
	tickets  *tickets
	holdings *holdings

	taken     []uint64            // requests that were taken over
	unclaimed map[claim][]*ticket // tickets of theirs for which no call waits yet
	since     locks.Moment        // when they were taken over
}

// takeLegacy is [Engine.Inherit].
func (h *heirs) takeLegacy(state []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.view != nil || h.phase != outside || len(h.entries.all) > 0 {
		return errors.New("take over locks: this node has been a member already")
	}
	now := time.Now()
	l, err := readLegacy(state, now)
	if err == nil {
		err = h.settleIn(l, now)
	}
	if err != nil {
		h.reset()
		return fmt.Errorf("take over locks: %w", err)
	}
	h.ledger.begin()
	h.alarm.wakeFor(now.Add(tellAfter))
	h.broadcast()
	return nil
}

// reset takes all back that settleIn has done.
func (h *heirs) reset() {
	h.entries.takeAll()
	h.quota.reset()
	h.tickets.places.clear()
	clear(h.waiters.all)
	h.damages.own, h.damages.serial = nil, 0
	h.damages.told.clear()
	h.tenure.Store(1)
	h.phase, h.view, h.stated, h.newRules, h.entries.floor, h.lastID = outside, nil, false, false, 0, 0
	h.taken, h.unclaimed = nil, nil
}

// settleIn makes this engine what l says, between two epochs. It does not know yet
// what it is called in the next one: until then it goes by its former name.
func (h *heirs) settleIn(l *legacy, now time.Time) error {
	h.start = now.Add(-time.Duration(l.moment)) // moments go on
	h.tenure.Store(uint64(l.tenure))
	h.phase, h.stated, h.newRules = frozen, true, l.newRules
	h.view = &locks.View{Epoch: l.epoch, Self: l.self, Members: []locks.NodeID{l.self}}
	h.lastID, h.entries.floor = l.lastID, l.floor
	h.entries.unseen()
	h.since = h.Moment()
	for _, p := range l.pinned {
		h.entries.pin(p.key, p.algorithm)
	}
	h.damages.serial = l.serial
	for _, w := range l.words {
		h.damages.own = append(h.damages.own, ownWord{key: w.key, serial: w.serial, at: h.since - locks.Moment(w.ago)})
	}
	for _, k := range l.told {
		h.damages.told.put(k)
	}
	for _, p := range l.places {
		h.tickets.places.restore(p, now)
	}
	h.unclaimed = map[claim][]*ticket{}
	for i := range l.keys {
		if err := h.inherit(l, &l.keys[i], now); err != nil {
			return fmt.Errorf("%v: %w", l.keys[i].key, err)
		}
	}
	for _, r := range l.requests {
		h.taken = append(h.taken, r.id)
	}
	slices.Sort(h.taken)
	return nil
}

// restore is the inverse of what describe says of a place.
func (p *places) restore(x legacyPlace, now time.Time) {
	if p.m == nil {
		p.m = map[place][]kept{}
	}
	p.m[x.place] = append(p.m[x.place], kept{stamp: x.stamp, since: before(now, x.since), until: now.Add(placeFor - x.ago)})
}

// inherit makes the entry that k tells of.
func (h *heirs) inherit(l *legacy, k *legacyKey, now time.Time) error {
	en := h.entries.entry(k.key, k.path, k.algorithm)
	if en == nil {
		return fmt.Errorf("unknown algorithm %q", k.algorithm)
	}
	m, ok := en.machine.(locks.Heir)
	if !ok {
		return fmt.Errorf("%s has no machines that could be inherited", k.algorithm)
	}
	var held, waiting []locks.Ticket
	for _, t := range k.tickets {
		r := l.requests[t.req]
		x := locks.Ticket{ID: t.id, Owner: r.Owner, Mode: t.mode, Range: t.rng, Try: r.Try, Stamp: t.stamp}
		switch {
		case t.state == legacyAsks:
			waiting = append(waiting, x)
		case t.state != legacyGated && !k.beside:
			x.Stamp = locks.Stamp{}
			held = append(held, x)
		}
	}
	if err := m.Inherit(k.machine, held, waiting); err != nil {
		return err
	}
	if k.beside {
		en.barrier = map[locks.NodeID]bool{l.self: true}
	}
	en.messages = k.messages
	if en.gate.joined = k.joined; slices.ContainsFunc(k.tickets, func(t legacyTicket) bool { return t.state == legacyGated }) {
		en.gate.joined = max(k.joined, 1) // or nobody would open it
	}
	for i := range k.tickets {
		if err := h.settleTicket(en, &k.tickets[i], l.requests[k.tickets[i].req], now); err != nil {
			return err
		}
	}
	en.dirty = k.dirty || en.holdsWrite()
	h.entries.settle(en)
	return h.order(en)
}

// settleTicket makes a ticket of en, of req.
func (h *heirs) settleTicket(en *entry, x *legacyTicket, req *request, now time.Time) error {
	t := newTicket(en, req, posix.Piece{Part: locks.Part{ID: x.id, Mode: x.mode, Range: x.rng}, Handle: x.handle})
	t.token, t.told = x.token, x.told
	req.pieces++
	h.quota.keep(t)
	switch x.state {
	case legacyHeld, legacyUnderway:
		t.tenure = h.Tenure()
		en.took(t)
		switch {
		case x.state == legacyUnderway:
			en.beginDelivery(t)
			h.offer(t)
		case !en.isOpen():
			o := en.owner(req.Owner)
			o.knows(req.asker)
			o.replace(o.len(), o.len(), t) // order puts them in order
		case en.handles[t.Handle] != nil:
			return fmt.Errorf("handle %d has two locks", t.Handle)
		default:
			en.setHandle(t.Handle, t)
		}
	default:
		w := t.own()
		w.stamp, w.since, t.asks = x.stamp, before(now, x.since), x.state == legacyAsks
		w.due, w.probe = now.Add(tellAfter), now.Add(firstProbe)
		h.waiters.add(t)
		if !t.asks {
			en.gate.wait(t)
		}
		h.offer(t)
	}
	return nil
}

// order puts what owners have of en in the order of its offsets.
func (h *heirs) order(en *entry) error {
	for id, o := range en.owners {
		ts := slices.SortedFunc(o.slice(0, o.len()), func(a, b *ticket) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
		for i := 1; i < len(ts); i++ {
			if ts[i-1].Range.End > ts[i].Range.Start {
				return fmt.Errorf("owner %d has %v twice", id, ts[i].Range)
			}
		}
		fresh := &owner{id: id, askers: o.askers}
		for i, t := range ts {
			fresh.replace(i, i, t)
		}
		en.setOwner(fresh)
	}
	return nil
}

// offer has a call be able to go on with t.
func (h *heirs) offer(t *ticket) {
	c := t.req.claim()
	h.unclaimed[c] = append(h.unclaimed[c], t)
}

// claim is the ticket that r went on with in the process before this one; of
// several that of its thread, if that is among them. It is nil if there is none.
func (h *heirs) claim(r *locks.Request) *ticket {
	c := claimOf(r)
	ts := slices.DeleteFunc(h.unclaimed[c], h.settled)
	if len(ts) == 0 {
		delete(h.unclaimed, c)
		return nil
	}
	i := max(0, slices.IndexFunc(ts, func(t *ticket) bool { return t.req.Program.Thread() == r.Program.Thread() }))
	t := ts[i]
	h.unclaimed[c] = slices.Delete(ts, i, i+1)
	return t
}

// settled reports whether t neither waits nor is on its way to its program.
func (h *heirs) settled(t *ticket) bool {
	return !h.waiters.has(t) && !(t.underway && !h.holdings.gone(t.entry, t))
}

// expire gives up what nobody has claimed in time, and returns when to look again;
// 0 if there is nothing left.
func (h *heirs) expire() time.Duration {
	if len(h.unclaimed) == 0 {
		return 0
	}
	if left := max(h.since, h.began) + claimTime - h.Moment(); left > 0 || h.phase != active {
		return max(time.Duration(left), time.Second)
	}
	reason := "no program has come back to it after the daemon was replaced"
	var ts []*ticket
	for _, x := range h.unclaimed {
		ts = append(ts, x...)
	}
	h.unclaimed = nil
	slices.SortFunc(ts, func(a, b *ticket) int { return cmp.Compare(a.ID, b.ID) })
	for _, t := range ts {
		switch {
		case h.settled(t):
		case h.waiters.has(t):
			h.tickets.withdraw(t, locks.ErrInterrupted, reason)
		default:
			h.holdings.undo(t.entry, t, reason)
		}
	}
	return 0
}
