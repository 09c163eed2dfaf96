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
	// circle through several files.
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
	next := time.Hour
	for el := e.idle.Front(); el != nil; el = e.idle.Front() {
		e.mu.breathe()
		if el = e.idle.Front(); el == nil {
			break
		}
		en := el.Value.(*entry)
		if left := en.since.Add(e.o.Expire).Sub(now); left > 0 {
			next = min(next, left)
			break
		}
		if e.shed(en) {
			e.remove(en)
			continue
		}
		if e.phase == active && len(en.outbox) == 0 {
			more := false
			e.step(en, func(turn *locks.Turn) {
				en.machine.Expire(turn)
				more = turn.More
			})
			if more && len(en.outbox) == 0 {
				continue
			}
		}
		switch {
		case e.drop(en):
		case e.phase != active || en.dirty || len(en.outbox) > 0:
			en.since = now
			e.idle.MoveToBack(en.idle)
		default:
			// A peer keeps a permission or owes an answer. What it sends
			// next puts the entry on the list again.
			e.idle.Remove(en.idle)
			en.idle = nil
		}
	}
	if e.idle.Len() > 0 {
		next = min(next, e.o.Expire)
	}
	for _, t := range e.waitingTickets() {
		e.mu.breathe()
		if _, waits := e.waiters[t]; !waits {
			continue // it has come to its end since
		}
		if left := t.probe.Sub(now); left > 0 {
			next = min(next, left)
		} else {
			t.probeStep = min(max(2*t.probeStep, nextProbe), maxProbe)
			t.probe = now.Add(t.probeStep)
			next = min(next, t.probeStep)
			e.chase(t)
			if _, waits := e.waiters[t]; !waits {
				continue
			}
		}
		if left := t.due.Sub(now); left > 0 {
			next = min(next, left)
			continue
		}
		if t.req.Try && len(t.entry.barrier) > 0 {
			e.withdraw(t, errBarrier, errBarrier.Error())
			continue
		}
		if t.told && t.req.Try && (e.phase != active || !e.o.Live(0)) {
			e.withdraw(t, errUnsure, "no answer: "+e.waitsFor(t))
			continue
		}
		if !t.told {
			t.told = true
			e.record(Waiting, t.entry, t.req, event{rng: t.req.Range, reason: e.waitsFor(t)})
			t.due = t.since.Add(t.entry.patience(now))
			if t.req.Try {
				t.due = t.req.asked.Add(tryPatience)
			}
			next = min(next, max(t.due.Sub(now), 0))
			continue
		}
		if !t.asks {
			t.entry.pass(now)
			e.openGateFor(t)
			next = 0
			continue
		}
		t.step = min(max(2*t.step, firstOvertake), maxOvertake)
		t.due = now.Add(t.step + time.Duration(e.o.Jitter()*float64(t.step)/4))
		next = min(next, t.due.Sub(now))
		if !t.req.Try {
			e.overtake(t)
		}
	}
	if left := e.places.expire(now); left > 0 {
		next = min(next, left)
	}
	next = e.sweepAskingBack(now, next)
	if left := e.idleDelegations(); left > 0 {
		next = min(next, left)
	}
	return next
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
