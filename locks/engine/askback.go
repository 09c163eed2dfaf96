package engine

import (
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// Where a lock goes to and fro between programs of two nodes hundreds of times in
// a second, each asks for it again as soon as it has given it up: a request and
// an answer for each time. A node that has seen itself do so asks for the
// permission back in the moment in which it gives it away, in the same packet as
// the answer: mostly the request of its program comes before the permission
// does, leans on that question, and costs no message of its own.
//
// To the machines this is a request like any other, of an owner that is no
// program, and that gives its ticket up in the turn in which it is granted. So
// it never keeps anybody from anything but by the order of the queue, and takes
// no place from a request of a program: that has a stamp of its own.
//
// Only where there are two nodes. A question that is asked early has an early place
// in the order of all: with a third node, whose request is on its way, a program
// that leans on it would go before one that has asked long before it.
//
// It is a guess. It is made only when it would have been right several times, for
// one range and for writing, and not for what was not used since it came: else
// two nodes would send a permission to and fro for nobody. If it was wrong, many
// more such times have to come before the next one. And it ends soon if no
// program leans on it, since a reader stands behind it as behind any writer.
// Where a lock is given away less often a message more or less is nothing, and
// somebody waits for the answer, which had better go alone.

// AskBackLimits are when a node asks a permission back that it gives away. Zero
// stands for the default.
type AskBackLimits struct {
	// After: so many times one after the other it was given away when a program
	// of this node had used it, each at most Often after the one before.
	// Default 4, and 5 ms.
	After int
	Often time.Duration
	// Missed: so many such times more after a guess that was of no use.
	// Default 16.
	Missed int
	// For is how long a guess waits for a program. Default 50 ms.
	For time.Duration
}

func (l *AskBackLimits) setDefaults() {
	if l.After == 0 {
		l.After = 4
	}
	if l.Often == 0 {
		l.Often = 5 * time.Millisecond
	}
	if l.Missed == 0 {
		l.Missed = 16
	}
	if l.For == 0 {
		l.For = 50 * time.Millisecond
	}
}

// askBacks ask for permissions back.
type askBacks struct {
	*base
	alarm   *alarm
	entries *entries
	stepper *stepper
	open    []*entry // those with a guess that is not answered, and some more
}

// askBackOwner holds nothing for longer than a turn.
const askBackOwner = ^locks.OwnerID(0)

// askBack is what a node knows of its own use of a key, to guess whether it will
// be used again soon.
type askBack struct {
	rng    locks.Range // that was locked last
	used   bool        // by a program that may write, since the permission came
	came   bool        // for a guess, and was not used yet
	gave   time.Time   // when a permission that had been used was given away last
	right  int         // times, one after the other; negative after a wrong guess
	ticket locks.TicketID
	due    time.Time // when the ticket is taken back
	listed bool      // in askBacks.open
}

// uses is called when a program has been granted t.
func (a *askBacks) uses(en *entry, t *ticket) {
	if en.isOpen() || !en.alg.Shared || len(a.view.Members) != 2 {
		return
	}
	if en.back == nil {
		en.back = new(askBack)
	}
	b := en.back
	if t.Mode != locks.Write || t.Range != b.rng {
		b.rng, b.right = t.Range, min(b.right, 0)
	}
	b.used, b.came = t.Mode == locks.Write, false
}

// asks is called when a program asks, before its ticket does: a guess that it
// cannot lean on would only be in its way.
func (a *askBacks) asks(en *entry, req *request) {
	if b := en.back; b != nil && !req.Try && (req.Mode != locks.Write || req.Range != b.rng) {
		a.end(en)
	}
}

// gaveAway is called after a turn in which a permission of this node went to
// another one that asked for it.
func (a *askBacks) gaveAway(en *entry) {
	b := en.back
	switch {
	case b == nil || len(a.view.Members) != 2:
		return
	case b.came:
		b.came, b.right = false, -a.o.AskBack.Missed
		return
	case !b.used:
		return
	}
	now := time.Now()
	if now.Sub(b.gave) <= a.o.AskBack.Often {
		b.right = min(b.right+1, a.o.AskBack.After)
	} else {
		b.right = min(b.right, 0)
	}
	b.used, b.gave = false, now
	if b.right < a.o.AskBack.After || b.ticket != 0 || a.closed || a.phase != active || len(en.barrier) > 0 || en.awaited() {
		return
	}
	b.ticket, b.due = locks.TicketID(a.id()), now.Add(a.o.AskBack.For)
	if !b.listed {
		b.listed = true
		a.open = append(a.open, en)
	}
	a.alarm.wakeFor(b.due)
	a.stepper.step(en, func(turn *locks.Turn) {
		en.machine.Acquire(locks.Ticket{ID: b.ticket, Owner: askBackOwner, Mode: locks.Write, Range: b.rng}, turn)
	})
}

// cameBack handles the grant of the ticket of a guess.
func (a *askBacks) cameBack(en *entry) {
	b := en.back
	id := b.ticket
	b.ticket, b.came = 0, !b.used
	gave := a.stepper.step(en, func(turn *locks.Turn) { en.machine.Replace([]locks.TicketID{id}, nil, turn) })
	if gave && b.came { // to one who waited, and nobody here has used it
		b.came, b.right = false, -a.o.AskBack.Missed
	}
}

// end takes the ticket of a guess back.
func (a *askBacks) end(en *entry) {
	b := en.back
	if b == nil || b.ticket == 0 {
		return
	}
	id := b.ticket
	b.ticket, b.right = 0, -a.o.AskBack.Missed
	a.stepper.step(en, func(turn *locks.Turn) { en.machine.Cancel(id, turn) })
}

// sweep ends the guesses that nobody has leaned on, and returns after
// what time it should be called again, or next if that is sooner.
func (a *askBacks) sweep(now time.Time, next time.Duration) time.Duration {
	var due []*entry
	a.open = slices.DeleteFunc(a.open, func(en *entry) bool {
		b := en.back
		if b.ticket == 0 {
			b.listed = false
			return true
		}
		if left := b.due.Sub(now); left > 0 {
			next = min(next, left)
		} else if en.awaited() {
			b.due = now.Add(a.o.AskBack.For)
			next = min(next, a.o.AskBack.For)
		} else {
			due = append(due, en)
			b.listed = false
			return true
		}
		return false
	})
	for _, en := range due {
		a.end(en)
		a.entries.tidy(en)
	}
	return next
}

// clear forgets the guesses with their entries.
func (a *askBacks) clear() { a.open = nil }

// forget takes all guesses back, at the end of an epoch or a tenure.
func (a *askBacks) forget() {
	for _, en := range a.open {
		en.back.listed = false
		a.end(en)
	}
	a.open = nil
}
