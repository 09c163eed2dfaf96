package engine

import "time"

// A ledger that could not take something says so, and is of no use to anybody. What could
// not be taken may be gone later: so after each new view, and once in renewAfter, it is
// made void and written anew. Of many locks that takes long, and others have mu in
// between. What they change meanwhile they write down as ever, if it was written already
// or is new: all of that is in the new era, and lines of the old one are none. So when all
// has been looked at once, nothing is missing, and the node comes last. Who dies before
// that leaves a ledger that says nothing, and is of one that has been begun: it was void
// before it said that it is complete (shm.Tables.Renew), and nobody looks for an older one.

// renewAfter is how long a ledger is left alone that could not take something.
const renewAfter = time.Minute

// unwritten is the number of the record of the node while all else is being written:
// nothing is refused, and there is no such record.
const unwritten = ^uint32(0)

// ledgerFailure is what became of a ledger.
type ledgerFailure struct {
	l     Ledger // nil: it goes on, or it is being written anew
	at    time.Time
	err   error // nil: it is complete
	count int   // how often it was, and then was not
}

// begin writes down all that there is, and then that it is all: a new view begins, or
// this engine is one that has taken over. In the life of a tenure it is done once.
func (lg *ledger) begin() {
	if lg.l == nil {
		return
	}
	if lg.node != 0 {
		lg.writeNode()
		return
	}
	lg.node = unwritten
	for _, write := range lg.damageParts() {
		write()
	}
	for p, ks := range lg.tickets.places.m {
		for i := range ks {
			lg.place(&p, &ks[i])
		}
	}
	lg.writeEntries(func() bool { return false })
	lg.node = 0
	lg.writeNode()
}

// damageParts write down what there is of damage, each some thousand records at most.
func (lg *ledger) damageParts() []func() {
	return []func(){
		func() {
			for i := range lg.damages.own {
				lg.word(&lg.damages.own[i])
			}
		},
		func() {
			for k := range lg.damages.told.keys() {
				lg.damaged(k)
			}
		},
		func() {
			for i := range lg.gone {
				if x := &lg.gone[i]; x.number == 0 {
					x.number = lg.putTold(x.key)
				}
			}
		},
	}
}

// writeEntries writes down all entries and tickets that are not written yet, until over.
func (lg *ledger) writeEntries(over func() bool) {
	for _, en := range lg.entries.all {
		lg.sync(en)
		for _, t := range en.tickets {
			if (t.held || !t.req.Try) && !lg.has(t) {
				lg.ticket(t)
			}
			if over() {
				return
			}
		}
		if over() {
			return
		}
	}
	for en := range lg.leaving {
		if lg.sync(en); over() {
			return
		}
	}
}

// renew begins a ledger anew that could not take something. Places of requests that were
// interrupted it leaves out: they are soon over.
// REQUIRES: mu held. It lets go of it in between.
func (lg *ledger) renew() {
	lg.mu.breathe() // making it void is one part
	l := lg.failure.l
	if l == nil || lg.view == nil || lg.bequeathed {
		return
	}
	l.Renew()
	lg.l, lg.failure.l = l, nil
	lg.forgetLines()
	lg.node = unwritten
	era := lg.era
	over := func() bool {
		lg.mu.breathe()
		return lg.l == nil || lg.era != era // it has failed again, or ended
	}
	for _, write := range lg.damageParts() {
		if over() {
			return
		}
		write()
	}
	if over() {
		return
	}
	if lg.writeEntries(over); over() {
		return
	}
	lg.node = 0
	if lg.writeNode(); lg.l != nil {
		lg.failure.err = nil
		lg.o.Log.Info("the locks of this node are written down again: they outlive the daemon if it is killed")
	}
}

// renewSoon has it be tried by the next sweep in which the epoch is active.
func (lg *ledger) renewSoon() { lg.failure.at = time.Time{} }

// renewal is renew if it is time for that, and returns after what time it is; 0: never, or
// when the epoch is active.
func (lg *ledger) renewal(now time.Time) time.Duration {
	if lg.failure.l == nil || lg.phase != active {
		return 0
	}
	if left := lg.failure.at.Add(renewAfter).Sub(now); left > 0 {
		return left
	}
	if lg.renew(); lg.failure.l == nil {
		return 0
	}
	return renewAfter
}

// LedgerStatus is whether what this node holds is written down.
type LedgerStatus struct {
	Kept     bool  // it is, or will be when the node is a member
	Failures int   // how often that has ended
	Err      error // why it is not; nil: it is, or it was never to be
}

// LedgerStatus tells about the ledger.
func (e *Engine) LedgerStatus() LedgerStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := &e.ledger.failure
	return LedgerStatus{Kept: e.ledger.l != nil && x.err == nil, Failures: x.count, Err: x.err}
}
