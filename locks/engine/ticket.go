package engine

import (
	"fmt"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// tickets are the requests that machines are asked to grant: they wait, are
// decided, or withdrawn.
type tickets struct {
	*base
	alarm    *alarm
	journal  *journal
	ledger   *ledger
	quota    *quota
	waiters  *waiters
	entries  *entries
	wishes   *wishes
	stepper  *stepper
	barriers *barriers
	askBacks *askBacks
	reports  *reports
	queries  *queries
	places   places // of those that were interrupted
}

// gated reports whether t has to wait at the gate.
func (tk *tickets) gated(t *ticket) bool {
	en := t.entry
	if !en.holds() || !en.isOpen() || t.req.Try || en.machine.Wanted() == 0 {
		return false
	}
	if en.opened[t.req.Owner] == 0 {
		return false // it waits in the queue
	}
	if p := processOf(&t.req.Program); p != (process{}) && en.processes[p].has(uint64(t.req.Owner)) {
		return false
	}
	return en.gate.join()
}

// add adds a waiting ticket for all of a.
func (tk *tickets) add(en *entry, a *asked) *ticket {
	t := a.all(tk.id(), en)
	tk.quota.keep(t)
	tk.waiters.add(t)
	tk.entries.settle(en)
	return t
}

// park prepares t for waiting.
func (tk *tickets) park(t *ticket) {
	w := t.own()
	w.done = make(chan struct{})
	if w.since.IsZero() {
		w.since = t.req.asked
	}
	tk.waiters.park(t)
	w.due, w.probe = w.since.Add(tellAfter), w.since.Add(firstProbe)
	tk.ledger.parks(t)
	tk.wishes.tell(t.entry)
	if t.asks && t.nested() {
		tk.overtake(t)
	}
	if t.due.Before(t.probe) {
		tk.alarm.wakeFor(t.due)
	} else {
		tk.alarm.wakeFor(t.probe)
	}
}

// decided does what the outcome of a ticket asks for.
func (tk *tickets) decided(en *entry, d locks.Outcome) {
	if b := en.back; b != nil && d.Ticket == b.ticket {
		tk.askBacks.cameBack(en)
		return
	}
	t := en.tickets[d.Ticket]
	tk.waiters.end(t)
	now := time.Now()
	wait := event{at: now, rng: t.req.Range, wait: now.Sub(t.req.asked), messages: t.req.cost(en)}
	if d.Granted {
		t.token, t.tenure, t.req.granted = d.Token, tk.Tenure(), now
		en.took(t)
		tk.askBacks.uses(en, t)
		if en.writes(t.Mode) {
			en.dirty = true
			en.gate.wrote()
		}
		wait.token = d.Token
		tk.journal.record(Granted, en, t.req, wait)
		en.beginDelivery(t)
		tk.ledger.changes(t)
	} else {
		wait.reason, wait.final = tk.reports.holders(en, t.req), true
		t.own().err = fmt.Errorf("%w by %s", locks.ErrWouldBlock, wait.reason)
		tk.quota.lose(t)
		tk.journal.record(Denied, en, t.req, wait)
		tk.entries.settle(en)
	}
	t.end()
}

// withdraw ends the waiting of t with err.
func (tk *tickets) withdraw(t *ticket, err error, reason string) {
	en := t.entry
	tk.waiters.end(t)
	tk.quota.lose(t)
	t.own().err = err
	if t.asks {
		tk.stepper.step(en, func(turn *locks.Turn) { en.machine.Cancel(t.ID, turn) })
	} else {
		en.gate.leave(t)
	}
	tk.journal.record(Withdrawn, en, t.req, event{rng: t.req.Range, wait: time.Since(t.req.asked),
		messages: t.req.cost(en), reason: reason, final: true})
	tk.entries.settle(en)
	t.end()
}

// overtake moves t to the front of the queue, if nothing but the queue is in
// its way: then no order of waiting is worth a deadlock through other files.
// What is held elsewhere is known to those who owe t an answer, so they are
// asked first.
func (tk *tickets) overtake(t *ticket) {
	if tk.phase != active || !tk.o.Live(0) {
		return // it could not enter now, also in front of all
	}
	local, remote := tk.barriers.blockers(t, 1)
	if len(local) > 0 {
		return
	}
	tk.queries.askThen(t, remote, func() {
		if !tk.waiters.has(t) {
			return
		}
		now, w := time.Now(), t.own()
		if t.told {
			w.step, w.look = min(max(2*w.step, firstOvertake), maxOvertake), 0
			w.due = tk.after(now, w.step)
			tk.alarm.wakeFor(w.due)
		}
		t.entry.gate.pass(now)
		tk.stepper.step(t.entry, func(turn *locks.Turn) { t.entry.machine.Overtake(t.ID, turn) })
	})
}

// after is about d after now: tickets that began to wait at the same time do not
// all look again at the same time.
func (tk *tickets) after(now time.Time, d time.Duration) time.Time {
	return now.Add(d + time.Duration(tk.o.Jitter()*float64(d)/4))
}
