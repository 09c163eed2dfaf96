package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

const (
	// A wait longer than this is worth a line in the journal that says why.
	tellAfter = 100 * time.Millisecond
	// A ticket that has waited for firstOvertake without a held lock in its
	// way moves to the front of the queue, and again after twice the time, up
	// to maxOvertake: a queue is a courtesy, and courtesies can go round in a
	// cycle through several files. While a held lock is in its way, or this node
	// could not enter, it has overtaken nobody, and none is worse off for another
	// look: so it looks again after maxLook at the latest. Else a ticket that has
	// waited for long would stand still for as long again when it is part of such
	// a cycle. A look costs about as much as a probe, see maxProbe.
	firstOvertake = time.Second
	maxOvertake   = 30 * time.Second
	maxLook       = 8 * time.Second
	// A try is answered at once, but for a node that is not sure of itself, or while
	// the members agree on a view: that may be over in a moment, so it is given this
	// long, from when it began. Until then who was asked will answer, or another one
	// in its place, or the members drop it.
	tryPatience = 2 * time.Second
	// placeFor is how long an interrupted request keeps its place.
	placeFor = time.Second
)

var errUnsure = fmt.Errorf("%w: this node is not sure at the moment that it is still a member", locks.ErrUnavailable)

func jitter() float64 { return rand.Float64() }

// sweeper does what time asks for.
type sweeper struct {
	*base
	journal   *journal
	ledger    *ledger
	waiters   *waiters
	entries   *entries
	stepper   *stepper
	askBacks  *askBacks
	reports   *reports
	tickets   *tickets
	borrowed  *borrowed
	deadlocks *detector
	heirs     *heirs
}

// sweep does what is due, and returns after what time it should be called
// again.
// REQUIRES: mu held. It may let go of it in between.
func (sw *sweeper) sweep(now time.Time) time.Duration {
	if sw.bequeathed {
		return time.Hour
	}
	s := sweeping{sw, now, time.Hour}
	s.idle()
	for _, t := range sw.waiters.sorted() {
		sw.mu.breathe()
		if sw.waiters.has(t) { // else it has come to its end since
			s.waiting(t)
		}
	}
	if left := sw.tickets.places.expire(now); left > 0 {
		s.in(left)
	}
	if left := sw.heirs.expire(); left > 0 {
		s.in(left)
	}
	if left := sw.ledger.expire(now); left > 0 {
		s.in(left)
	}
	s.next = sw.askBacks.sweep(now, s.next)
	if left := sw.borrowed.idle(); left > 0 {
		s.in(left)
	}
	if left := sw.ledger.renewal(now); left > 0 {
		s.in(left)
	}
	return s.next
}

// sweeping is one sweep: the time that it goes by, and after what time the next
// one is due.
type sweeping struct {
	*sweeper
	now  time.Time
	next time.Duration
}

// in has the next sweep come after d at the latest.
func (s *sweeping) in(d time.Duration) { s.next = min(s.next, d) }

// idle gives back what nobody has used for a while.
func (s *sweeping) idle() {
	for el := s.entries.idle.Front(); el != nil; el = s.entries.idle.Front() {
		s.mu.breathe()
		if el = s.entries.idle.Front(); el == nil {
			break
		}
		en := el.Value.(*entry)
		if left := en.since.Add(s.o.Expire).Sub(s.now); left > 0 {
			s.in(left)
			break
		}
		s.expire(en)
	}
	if s.entries.idle.Len() > 0 {
		s.in(s.o.Expire)
	}
}

// expire takes en, which has been idle for long enough, off the front of the list
// of these, unless its machine has more to say.
func (s *sweeping) expire(en *entry) {
	if s.borrowed.shed(en) {
		s.entries.remove(en)
		return
	}
	if s.phase == active && len(en.outbox) == 0 {
		more := false
		s.stepper.step(en, func(turn *locks.Turn) {
			en.machine.Expire(turn)
			more = turn.More
		})
		if more && len(en.outbox) == 0 {
			return
		}
	}
	switch {
	case s.entries.drop(en):
	case s.phase != active || en.dirty || len(en.outbox) > 0:
		s.entries.stay(en, s.now)
	default:
		// A peer keeps a permission or owes an answer. What it sends
		// next puts the entry on the list again.
		s.entries.unlist(en)
	}
}

// waiting does what is due for t, which waits.
func (s *sweeping) waiting(t *ticket) {
	t.own()
	if left := t.probe.Sub(s.now); left > 0 {
		s.in(left)
	} else {
		t.probeStep = min(max(2*t.probeStep, nextProbe), maxProbe)
		t.probe = s.now.Add(t.probeStep)
		s.in(t.probeStep)
		s.deadlocks.start(t)
		if !s.waiters.has(t) {
			return
		}
	}
	unsure := t.req.Try && (s.phase != active || !s.o.Live(0))
	switch {
	case !unsure:
		t.unsure = time.Time{}
	case t.unsure.IsZero():
		t.unsure = s.now
	}
	left := t.due.Sub(s.now)
	switch {
	case left > 0:
		s.in(left)
	case t.req.Try && len(t.entry.barrier) > 0:
		s.tickets.withdraw(t, errBarrier, errBarrier.Error())
	case t.told && unsure && s.now.Sub(t.unsure) < tryPatience:
		t.due = t.unsure.Add(tryPatience)
		s.in(t.due.Sub(s.now))
	case t.told && unsure:
		s.tickets.withdraw(t, errUnsure, "no answer: "+s.reports.waitsFor(t))
	case !t.told:
		t.told = true
		s.ledger.changes(t)
		s.journal.record(Waiting, t.entry, t.req, event{rng: t.req.Range, reason: s.reports.waitsFor(t)})
		t.due = t.since.Add(t.entry.gate.patience(s.now))
		if t.req.Try {
			t.due = t.req.asked.Add(tryPatience)
		}
		s.in(max(t.due.Sub(s.now), 0))
	case !t.asks:
		t.entry.gate.pass(s.now)
		s.stepper.openGateFor(t)
		s.in(0)
	default:
		t.look = min(max(2*t.look, firstOvertake), maxLook)
		if t.req.Try {
			t.look = min(t.look, tryPatience)
		}
		t.due = s.tickets.after(s.now, t.look)
		s.in(t.due.Sub(s.now))
		if !t.req.Try {
			s.tickets.overtake(t)
		}
	}
}

// giveUp drops en before its time, if nobody here uses it: the number of a file
// that was removed may be that of a new one under another rule by now. What is
// refused instead leaves a machine elsewhere that waits for an answer.
func (sw *sweeper) giveUp(en *entry) bool {
	if len(en.tickets) > 0 || sw.phase != active {
		return false
	}
	sw.askBacks.end(en)
	for more := true; more; {
		sw.stepper.step(en, func(turn *locks.Turn) {
			en.machine.Expire(turn)
			more = turn.More
		})
	}
	return sw.entries.drop(en)
}
