package engine

import "time"

// A ledger that could not take something says so, and is of no use to anybody. What could
// not be taken may be gone later: so at each new view, and once in renewAfter, it is made
// void and written anew, all under mu. Who dies meanwhile leaves one that says nothing:
// it was void before it said that it is complete, and the node comes last.

// renewAfter is how long a ledger is left alone that could not take something.
const renewAfter = time.Minute

// ledgerFailure is what became of a ledger.
type ledgerFailure struct {
	l     Ledger // nil: it goes on
	at    time.Time
	err   error
	count int
}

// renew begins a ledger anew that could not take something.
// REQUIRES: mu held, and not let go of since something was changed.
func (lg *ledger) renew() {
	l := lg.failure.l
	if l == nil || lg.view == nil || lg.bequeathed {
		return
	}
	l.Renew()
	lg.l, lg.failure.l, lg.failure.err = l, nil, nil
	for _, en := range lg.entries.all {
		for _, t := range en.tickets {
			t.line = 0
		}
	}
	lg.forgetLines()
	if lg.begin(); lg.l != nil {
		lg.o.Log.Info("the locks of this node are written down again: they outlive the daemon if it is killed")
	}
}

// renewal is renew if it is time for that, and returns after what time it is; 0: never.
func (lg *ledger) renewal(now time.Time) time.Duration {
	if lg.failure.l == nil {
		return 0
	}
	if left := lg.failure.at.Add(renewAfter).Sub(now); left > 0 {
		return left
	}
	if lg.renew(); lg.failure.l == nil {
		return 0
	}
	lg.failure.at = now // also if it was not tried
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
	return LedgerStatus{Kept: e.ledger.l != nil, Failures: x.count, Err: x.err}
}
