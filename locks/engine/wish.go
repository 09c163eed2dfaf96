package engine

import (
	"slices"

	"dmxfs/locks"
)

// A node that delegates lists the files that it excepts, and there may be 65,000
// of them. That is done in parts. Until it is over nothing is delegated, so that
// what becomes known here meanwhile, or is dropped, is just one exception more.

// answerWish delegates to n, or refuses.
// REQUIRES: e.mu held. It may let go of it in between.
func (e *Engine) answerWish(n locks.NodeID) {
	d := &e.deleg
	if d.to != "" || d.listing || d.told != nil || len(d.asked)+len(d.from) > 0 || !e.uniform() ||
		len(e.entries)+e.clean.len() > maxExcepted ||
		e.Moment()-e.delegTimes.opened < locks.Moment(e.o.Delegations.Quiet) {
		e.tellMember(n, []byte{frameRefuse})
		return
	}
	d.listing, d.excepted = true, map[locks.Key]struct{}{}
	list, token, ok := e.listExceptions(n)
	if !ok {
		return // the epoch is over
	}
	d.to, d.listing, d.recalled, d.returned = n, false, false, nil
	e.tellMember(n, keysFrames(frameDelegate, max(token, e.least()), list)...)
	e.o.Log.Debug("delegated the files that this node does not use", "to", n)
}

// listExceptions tells n what is excepted, but for the rest, which it returns, and
// a token that is at least that of every grant of class Open that this node knows
// of. It is false if the epoch ends meanwhile.
func (e *Engine) listExceptions(n locks.NodeID) (rest []locks.Key, token locks.Token, ok bool) {
	d, epoch := &e.deleg, e.view.Epoch
	over := func() bool { return e.mu.breathe() && (e.phase != active || e.view.Epoch != epoch) }
	for k, en := range e.entries {
		e.except(k)
		if token = max(token, en.machine.Token()); over() {
			return nil, 0, false
		}
	}
	for k := range e.clean.keys() {
		if e.except(k); over() {
			return nil, 0, false
		}
	}
	if len(d.untold) <= exceptionsAtOnce { // so that a run can be repeated; nobody needs it
		slices.SortFunc(d.untold, locks.Key.Compare)
	}
	for len(d.untold) > exceptionsAtOnce {
		e.tellMember(n, keysFrame(frameDelegate, true, e.least(), d.untold[:exceptionsAtOnce]))
		if d.untold = d.untold[exceptionsAtOnce:]; over() {
			return nil, 0, false
		}
	}
	rest, d.untold = d.untold, nil
	return rest, token, true
}

// exceptionsAtOnce is how many exceptions are in a message.
const exceptionsAtOnce = 512

// except notes that k is known here, or was, if exceptions are being listed.
func (e *Engine) except(k locks.Key) {
	d := &e.deleg
	if !d.listing || k.Class != locks.Open {
		return
	}
	if _, again := d.excepted[k]; !again {
		d.excepted[k] = struct{}{}
		d.untold = append(d.untold, k)
	}
}

// least is a token of this epoch that is at least that of every machine that was
// dropped.
func (e *Engine) least() locks.Token { return max(e.floor, locks.TokenFloor(e.view.Epoch)) }
