package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"dmxfs/locks"
)

const (
	// A ticket that has waited for firstOvertake without a lock of this node
	// in its way moves to the front of the queue, and again after twice the
	// time, up to maxOvertake (rw.md, section 6): a queue is a courtesy, and
	// courtesies can go round in a circle through several files.
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
// REQUIRES: e.mu held.
func (e *Engine) sweep(now time.Time) time.Duration {
	next := time.Hour
	for el := e.idle.Front(); el != nil; {
		en := el.Value.(*entry)
		el = el.Next()
		if left := en.since.Add(e.o.Expire).Sub(now); left > 0 {
			next = min(next, left)
			break
		}
		if e.phase == active {
			e.step(en, func(turn *locks.Turn) { en.machine.Expire(turn) })
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
	for _, t := range e.waiting() {
		if left := t.due.Sub(now); left > 0 {
			next = min(next, left)
			continue
		}
		if t.req.Try && (e.phase != active || !e.o.Live(0)) {
			e.withdraw(t, errUnsure, "no answer: "+e.waitsFor(t))
			continue
		}
		t.step = min(2*t.step, maxOvertake)
		t.due = now.Add(t.step + time.Duration(e.o.Jitter()*float64(t.step)/4))
		next = min(next, t.due.Sub(now))
		if e.phase != active || t.req.Try {
			continue
		}
		if local, _ := t.entry.machine.Blockers(t.ID); len(local) == 0 {
			e.step(t.entry, func(turn *locks.Turn) { t.entry.machine.Overtake(t.ID, turn) })
		}
	}
	if left := e.places.expire(now); left > 0 {
		next = min(next, left)
	}
	return next
}
