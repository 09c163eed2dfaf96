package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"dmxfs/locks"
)

const (
	// A wait longer than this is worth a line in the journal that says why.
	tellAfter = 100 * time.Millisecond
	// A ticket that has waited for firstOvertake without a held lock in its
	// way moves to the front of the queue, and again after twice the time, up
	// to maxOvertake: a queue is a courtesy, and courtesies can go round in a
	// cycle through several files.
	firstOvertake = time.Second
	maxOvertake   = 30 * time.Second
	// A try is answered at once, but for a node that is not sure of itself:
	// that may be over in a moment, so it is given this long.
	tryPatience = 2 * time.Second
	// placeFor is how long an interrupted request keeps its place.
	placeFor = time.Second
)

var errUnsure = fmt.Errorf("%w: this node is not sure at the moment that it is still a member", locks.ErrUnavailable)

func jitter() float64 { return rand.Float64() }

// sweep does what is due, and returns after what time it should be called
// again.
// REQUIRES: e.mu held. It may let go of it in between.
func (e *Engine) sweep(now time.Time) time.Duration {
	s := sweeping{e, now, time.Hour}
	s.idle()
	for _, t := range e.waitingTickets() {
		e.mu.breathe()
		if _, waits := e.waiters[t]; waits { // else it has come to its end since
			s.waiting(t)
		}
	}
	if left := e.places.expire(now); left > 0 {
		s.in(left)
	}
	s.next = e.sweepAskingBack(now, s.next)
	if left := e.idleDelegations(); left > 0 {
		s.in(left)
	}
	return s.next
}

// sweeping is one sweep: the time that it goes by, and after what time the next
// one is due.
type sweeping struct {
	e    *Engine
	now  time.Time
	next time.Duration
}

// in has the next sweep come after d at the latest.
func (s *sweeping) in(d time.Duration) { s.next = min(s.next, d) }

// idle gives back what nobody has used for a while.
func (s *sweeping) idle() {
	e := s.e
	for el := e.idle.Front(); el != nil; el = e.idle.Front() {
		e.mu.breathe()
		if el = e.idle.Front(); el == nil {
			break
		}
		en := el.Value.(*entry)
		if left := en.since.Add(e.o.Expire).Sub(s.now); left > 0 {
			s.in(left)
			break
		}
		s.expire(en)
	}
	if e.idle.Len() > 0 {
		s.in(e.o.Expire)
	}
}

// expire takes en, which has been idle for long enough, off the front of the list
// of these, unless its machine has more to say.
func (s *sweeping) expire(en *entry) {
	e := s.e
	if e.shed(en) {
		e.remove(en)
		return
	}
	if e.phase == active && len(en.outbox) == 0 {
		more := false
		e.step(en, func(turn *locks.Turn) {
			en.machine.Expire(turn)
			more = turn.More
		})
		if more && len(en.outbox) == 0 {
			return
		}
	}
	switch {
	case e.drop(en):
	case e.phase != active || en.dirty || len(en.outbox) > 0:
		en.since = s.now
		e.idle.MoveToBack(en.idle)
	default:
		// A peer keeps a permission or owes an answer. What it sends
		// next puts the entry on the list again.
		e.idle.Remove(en.idle)
		en.idle = nil
	}
}

// waiting does what is due for t, which waits.
func (s *sweeping) waiting(t *ticket) {
	e := s.e
	if left := t.probe.Sub(s.now); left > 0 {
		s.in(left)
	} else {
		t.probeStep = min(max(2*t.probeStep, nextProbe), maxProbe)
		t.probe = s.now.Add(t.probeStep)
		s.in(t.probeStep)
		e.startProbe(t)
		if _, waits := e.waiters[t]; !waits {
			return
		}
	}
	left := t.due.Sub(s.now)
	switch {
	case left > 0:
		s.in(left)
	case t.req.Try && len(t.entry.barrier) > 0:
		e.withdraw(t, errBarrier, errBarrier.Error())
	case t.told && t.req.Try && (e.phase != active || !e.o.Live(0)):
		e.withdraw(t, errUnsure, "no answer: "+e.waitsFor(t))
	case !t.told:
		t.told = true
		e.record(Waiting, t.entry, t.req, event{rng: t.req.Range, reason: e.waitsFor(t)})
		t.due = t.since.Add(t.entry.patience(s.now))
		if t.req.Try {
			t.due = t.req.asked.Add(tryPatience)
		}
		s.in(max(t.due.Sub(s.now), 0))
	case !t.asks:
		t.entry.pass(s.now)
		e.openGateFor(t)
		s.in(0)
	default:
		t.step = min(max(2*t.step, firstOvertake), maxOvertake)
		t.due = s.now.Add(t.step + time.Duration(e.o.Jitter()*float64(t.step)/4))
		s.in(t.due.Sub(s.now))
		if !t.req.Try {
			e.overtake(t)
		}
	}
}

// overtake moves t to the front of the queue, if nothing but the queue is in
// its way: then no order of waiting is worth a deadlock through other files.
// What is held elsewhere is known to those who owe t an answer, so they are
// asked first.
func (e *Engine) overtake(t *ticket) {
	if e.phase != active || !e.o.Live(0) {
		return // it could not enter now, also in front of all
	}
	local, remote := e.blockers(t, 1)
	if len(local) > 0 {
		return
	}
	q := &query{id: e.id(), key: t.entry.key, mode: t.req.Mode, rng: t.req.Range}
	q.then = func() {
		if _, waits := e.waiters[t]; waits && len(q.found) == 0 {
			t.entry.pass(time.Now())
			e.step(t.entry, func(turn *locks.Turn) { t.entry.machine.Overtake(t.ID, turn) })
		}
	}
	e.queries[q.id] = q
	e.askThese(q, remote)
}
