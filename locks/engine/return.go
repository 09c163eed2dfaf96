package engine

import (
	"fmt"
	"maps"
	"slices"

	"dmxfs/locks"
)

// The end of a delegation concerns all that the delegate and the delegator know,
// which may be very many files. So it comes to each file at a moment of its own, as
// if each had a message of its own, and others go on in between:
//
//   - The delegate sheds what it can, and then looks at each file for what it keeps
//     from the delegators. What it tells them of a file after that, by which it may
//     come to keep something, reaches them before the end of the list; so these
//     files are on the list as well, whatever is kept of them (delegations.since).
//   - The delegator begins nothing anew as what it delegates, and then takes the
//     delegate's permission off one machine after the other. What the delegate sends
//     behind the list waits meanwhile: it is received in order.
//     It may delegate anew: what it knows is excepted then.

// parts lets others go on, if it is time to, and reports whether this epoch is over
// then.
// REQUIRES: e.mu held.
func (e *Engine) parts() (over func() bool) {
	epoch := e.view.Epoch
	return func() bool {
		e.mu.breathe()
		return e.phase != active || e.view.Epoch != epoch
	}
}

// returnAll returns what this node was delegated, or ends its wish, and asks
// for nothing more for a while.
// REQUIRES: e.mu held. It may let go of it in between.
func (e *Engine) returnAll(why string, by locks.NodeID) {
	d, over := &e.deleg, e.parts()
	if d.giving {
		return
	}
	e.o.Log.Debug("delegations are returned", "why", why, "by", by, "uses", d.uses)
	if d.all {
		d.giving = true
		for _, en := range e.snapshot() {
			if over() {
				return
			}
			if e.entries[en.key] == en && e.shed(en) {
				e.remove(en)
			}
		}
		d.giving = false
	}
	e.delegTimes.wait(e.Moment(), d.uses, &e.o.Delegations)
	d.all, d.uses, d.told, d.later = false, 0, nil, nil
	e.giveBack()
}

// giveBack tells those who have delegated to this node what it keeps.
// REQUIRES: e.mu held. It may let go of it in between.
func (e *Engine) giveBack() {
	d := &e.deleg
	if d.giving {
		return // those that have delegated since come next
	}
	d.giving = true
	for len(d.from) > 0 {
		to := slices.Sorted(maps.Keys(d.from))
		if !e.giveBackTo(to) {
			return
		}
		for _, n := range to {
			delete(d.from, n)
		}
	}
	d.giving = false
}

// giveBackTo is giveBack for some of them. It is false if the epoch ends meanwhile.
func (e *Engine) giveBackTo(to []locks.NodeID) bool {
	d, over, token := &e.deleg, e.parts(), e.least()
	d.since = map[locks.Key]struct{}{}
	keeps := make([][]locks.Key, len(to))
	for _, en := range e.snapshot() {
		if over() {
			return false
		}
		m, ok := en.delegable()
		if !ok || e.entries[en.key] != en { // dropped: there was nothing to keep
			continue
		}
		token = max(token, en.machine.Token())
		for i, n := range to {
			// What is in the outbox has happened here, and will there.
			if len(en.outbox) > 0 || m.Keeps(n) {
				keeps[i] = append(keeps[i], en.key)
			}
			if len(keeps[i]) == exceptionsAtOnce {
				e.tellMember(n, keysFrame(frameReturn, true, e.least(), keeps[i]))
				keeps[i] = nil
			}
		}
	}
	if over() {
		return false
	}
	since := slices.SortedFunc(maps.Keys(d.since), locks.Key.Compare)
	d.since = nil
	for i, n := range to {
		e.tellMember(n, keysFrames(frameReturn, max(token, e.least()), append(keeps[i], since...))...)
	}
	return true
}

// takeBack ends what this node delegates, with the last frame of what the
// delegate keeps.
// REQUIRES: e.mu held. It may let go of it in between.
func (e *Engine) takeBack(f *frame) error {
	d, over := &e.deleg, e.parts()
	if i := slices.IndexFunc(f.keys, func(k locks.Key) bool { return k.Class != locks.Open }); i >= 0 {
		return fmt.Errorf("%v was not delegated", f.keys[i])
	}
	if err := e.raiseFloor(f.token); err != nil {
		return err
	}
	if d.returned == nil {
		d.returned = map[locks.Key]bool{}
	}
	for _, k := range f.keys {
		d.returned[k] = true
		if e.entry(k, "", "") == nil {
			return fmt.Errorf("no algorithm serves %v", k)
		}
	}
	if f.more {
		return nil
	}
	by, kept := d.to, d.returned
	d.to, d.excepted, d.returned = "", nil, nil
	// The delegate has written files of which this node has not heard.
	e.forgot = e.Moment()
	var err error
	for _, en := range e.snapshot() {
		if over() {
			return err
		}
		m, ok := en.delegable()
		if !ok || e.entries[en.key] != en {
			continue
		}
		if !kept[en.key] {
			e.step(en, func(turn *locks.Turn) {
				if x := m.Returned(by, f.token, turn); x != nil {
					err = x
				}
			})
		}
		if len(en.tickets) == 0 && !e.drop(en) {
			e.settle(en)
		}
	}
	return err
}
