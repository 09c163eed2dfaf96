package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// Options are what an engine is made of. All fields are needed unless noted.
type Options struct {
	Transport Transport
	Files     Files
	Recorder  Recorder
	Log       *slog.Logger
	// Algorithms by name.
	Algorithms map[string]*locks.Algorithm
	// Rule names the algorithm of a path. It is called under the engine's
	// mutex and returns at once. Its answers are the same on all members of
	// an epoch, and change only as NewRules says.
	Rule func(path string) string
	// Live reports whether this node's tenure lasts longer than guard. It
	// reads a clock at every call.
	Live func(guard time.Duration) bool
	// Guard is how much of the tenure must be left when I/O under a lock
	// begins.
	Guard time.Duration
	// Expire is how long a permission is kept after the last use. Default
	// 1 s.
	Expire time.Duration
	// MaxLocks is how many locks a process may have; it gets ErrUnavailable for
	// more. Default DefaultMaxLocks.
	MaxLocks int
	// Uniform names the algorithm that serves all paths, or is empty if they
	// differ. It is called and answers as Rule. nil: nothing is delegated.
	Uniform     func() string
	Delegations DelegationLimits
	AskBack     AskBackLimits
	// Damaged is told of data that is not complete on the storage. It is called
	// under the engine's mutex and returns at once. nil: nobody is told.
	Damaged func(Damage)
	// Ledger, which is new and empty, is where all is written that another process
	// needs to go on if this one is killed, see ledger.go. nil: nothing is, and then
	// the locks are lost.
	Ledger Ledger
	// Jitter returns a random number in [0,1). Default math/rand.
	Jitter func() float64
}

// errClosed is why calls end when the node leaves.
var errClosed = fmt.Errorf("%w: %s", locks.ErrUnavailable, leaving)

// Engine owns the machines of one node. Its methods are safe for concurrent
// use, but for those named in the package comment under Epochs.
type Engine struct {
	*base
	alarm     *alarm
	journal   *journal
	ledger    *ledger
	quota     *quota
	waiters   *waiters
	entries   *entries
	damages   *damages
	outboxes  *outboxes
	wishes    *wishes
	stepper   *stepper
	barriers  *barriers
	askBacks  *askBacks
	reports   *reports
	queries   *queries
	tickets   *tickets
	holdings  *holdings
	breaker   *breaker
	lent      *lent
	borrowed  *borrowed
	deadlocks *detector
	heirs     *heirs
	sweeper   *sweeper
	closings  *closings
	inbox     *inbox
	epochs    *epochs
	bequest   *bequest
	calls     *calls
}

// New makes an engine. It is outside until the first Install.
func New(o Options) *Engine {
	if o.Expire == 0 {
		o.Expire = time.Second
	}
	if o.MaxLocks == 0 {
		o.MaxLocks = DefaultMaxLocks
	}
	if o.Jitter == nil {
		o.Jitter = jitter
	}
	o.Delegations.setDefaults()
	o.AskBack.setDefaults()
	b := &base{o: o, start: time.Now(), changed: make(chan struct{})}
	b.mu.start = b.start
	b.breathe = func() { b.mu.breathe() }
	b.tenure.Store(1)
	e := &Engine{base: b}
	e.assemble()
	return e
}

// assemble makes the parts of e from its base. None asks a part that is made
// after it, but for those that close a circle, at the end.
func (e *Engine) assemble() {
	b := e.base
	yielder, _ := b.o.Files.(Yielder)
	e.alarm = &alarm{kick: make(chan struct{}, 1)}
	e.journal = &journal{base: b}
	e.ledger = newLedger(b)
	e.quota = &quota{base: b, ledger: e.ledger, users: map[user]*usage{}}
	e.waiters = newWaiters()
	e.entries = newEntries(b, e.alarm, e.ledger)
	e.damages = newDamages(b, e.entries, e.ledger)
	e.outboxes = &outboxes{base: b, ledger: e.ledger, damages: e.damages, flushed: sync.NewCond(&b.mu)}
	e.wishes = &wishes{base: b, entries: e.entries, yielder: yielder}
	e.stepper = &stepper{base: b, ledger: e.ledger, outboxes: e.outboxes, wishes: e.wishes}
	e.barriers = &barriers{base: b, ledger: e.ledger, entries: e.entries, outboxes: e.outboxes, stepper: e.stepper}
	e.askBacks = &askBacks{base: b, alarm: e.alarm, entries: e.entries, stepper: e.stepper}
	e.reports = &reports{base: b, waiters: e.waiters, entries: e.entries, barriers: e.barriers}
	e.queries = &queries{base: b, entries: e.entries, outboxes: e.outboxes, barriers: e.barriers, open: map[uint64]*query{}}
	e.tickets = &tickets{base: b, alarm: e.alarm, journal: e.journal, ledger: e.ledger, quota: e.quota, waiters: e.waiters, entries: e.entries,
		wishes: e.wishes, stepper: e.stepper, barriers: e.barriers, askBacks: e.askBacks, reports: e.reports, queries: e.queries}
	e.holdings = &holdings{base: b, journal: e.journal, ledger: e.ledger, quota: e.quota, entries: e.entries, stepper: e.stepper,
		barriers: e.barriers, askBacks: e.askBacks}
	e.breaker = &breaker{base: b, entries: e.entries, holdings: e.holdings}
	e.lent = &lent{base: b, entries: e.entries, stepper: e.stepper}
	e.borrowed = &borrowed{base: b, alarm: e.alarm, entries: e.entries, outboxes: e.outboxes, lent: e.lent}
	e.deadlocks = &detector{base: b, alarm: e.alarm, waiters: e.waiters, entries: e.entries, barriers: e.barriers, tickets: e.tickets,
		seen: map[seenProbe]bool{}, cycles: map[uint64]*cycle{}}
	e.heirs = &heirs{base: b, alarm: e.alarm, ledger: e.ledger, quota: e.quota, waiters: e.waiters, entries: e.entries, damages: e.damages,
		tickets: e.tickets, holdings: e.holdings}
	e.sweeper = &sweeper{base: b, journal: e.journal, ledger: e.ledger, waiters: e.waiters, entries: e.entries, stepper: e.stepper, askBacks: e.askBacks,
		reports: e.reports, tickets: e.tickets, borrowed: e.borrowed, deadlocks: e.deadlocks, heirs: e.heirs}
	e.closings = &closings{base: b, entries: e.entries}
	e.inbox = &inbox{base: b, waiters: e.waiters, entries: e.entries, damages: e.damages, stepper: e.stepper, barriers: e.barriers,
		askBacks: e.askBacks, queries: e.queries, tickets: e.tickets, lent: e.lent, borrowed: e.borrowed, deadlocks: e.deadlocks,
		sweeper: e.sweeper, closings: e.closings, early: early{}}
	e.epochs = &epochs{base: b, alarm: e.alarm, journal: e.journal, ledger: e.ledger, quota: e.quota, waiters: e.waiters, entries: e.entries,
		damages: e.damages, outboxes: e.outboxes, stepper: e.stepper, barriers: e.barriers, askBacks: e.askBacks, queries: e.queries,
		tickets: e.tickets, lent: e.lent, borrowed: e.borrowed, deadlocks: e.deadlocks, closings: e.closings, inbox: e.inbox}
	e.bequest = &bequest{base: b, waiters: e.waiters, entries: e.entries, damages: e.damages, outboxes: e.outboxes,
		queries: e.queries, tickets: e.tickets, holdings: e.holdings, epochs: e.epochs}
	e.calls = &calls{base: b, alarm: e.alarm, journal: e.journal, ledger: e.ledger, quota: e.quota, waiters: e.waiters, entries: e.entries,
		damages: e.damages, stepper: e.stepper, askBacks: e.askBacks, reports: e.reports, tickets: e.tickets, holdings: e.holdings,
		lent: e.lent, borrowed: e.borrowed, heirs: e.heirs, sweeper: e.sweeper, closings: e.closings}

	e.ledger.alarm = e.alarm
	e.ledger.entries, e.ledger.damages, e.ledger.tickets = e.entries, e.damages, e.tickets // of which it writes
	e.tickets.places.came, e.tickets.places.left = e.ledger.place, e.ledger.left
	e.stepper.tickets = e.tickets    // what a turn decides is done at once
	e.entries.lent = e.lent          // how a machine begins depends on what is lent
	e.outboxes.borrowed = e.borrowed // and what is borrowed, on what members are told
	e.lent.borrowed = e.borrowed     // no two nodes delegate to each other
	e.closings.inbox = e.inbox       // what was held up is received
}

// Resume is called when the node is live again after it was not: what waited
// for that goes on.
func (e *Engine) Resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == active {
		e.resumeAll()
	}
	e.broadcast()
}

// ResumeIO is called when the node is live again after it was not, also where
// nothing can be granted yet, since states of other members are missing: what
// [Engine.Admit] held up goes on. State may wait for just that, as it returns
// when what was written here is written out.
func (e *Engine) ResumeIO() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broadcast()
}

// resumeAll lets every machine with a waiting ticket grant what it can.
func (e *Engine) resumeAll() {
	seen := map[*entry]bool{}
	for _, t := range e.waiters.sorted() {
		if en := t.entry; !seen[en] {
			seen[en] = true
			e.stepper.step(en, func(turn *locks.Turn) { en.machine.Resume(turn) })
		}
	}
}

// Run does what time asks for: it gives back permissions that nobody used for
// a while, and lets tickets overtake that wait without a reason on this node.
// It returns when ctx ends; every call that still waits then ends too.
func (e *Engine) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var quiet time.Time // until when there is no sweep
	for {
		select {
		case <-ctx.Done():
			e.close()
			e.outboxes.awaitWorkers()
			return context.Cause(ctx)
		case <-e.alarm.kick:
			if left := time.Until(quiet); left > 0 {
				e.mu.Lock()
				e.alarm.set(quiet)
				e.mu.Unlock()
				timer.Reset(left)
				continue
			}
		case <-timer.C:
		}
		e.mu.Lock()
		began := time.Now()
		// What becomes due while the sweep lets others go on, it may have passed.
		e.alarm.set(time.Time{})
		next := e.sweeper.sweep(began)
		// A sweep looks at all that wait. When those are many, sweeps are few.
		quiet = time.Now()
		quiet = quiet.Add(min(sweepShare*quiet.Sub(began), maxQuiet))
		e.alarm.set(began.Add(next))
		if e.alarm.sweepAt.Before(quiet) {
			e.alarm.set(quiet)
		}
		e.mu.Unlock()
		timer.Reset(max(time.Until(e.alarm.sweepAt), 1))
	}
}

// Sweeps take one part in sweepShare of the time at most, as long as none is
// put off for more than maxQuiet.
const (
	sweepShare = 20
	maxQuiet   = 50 * time.Millisecond
)

// Leave ends granting for good: the node is about to leave the view, or the
// process to end. Calls that wait end with ErrUnavailable, and unlocking does
// nothing any more. The machines go on to answer for what is held: it is free
// when the others go on without this node, and no sooner, since what programs
// have begun may still be on its way.
func (e *Engine) Leave() {
	e.close()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left.Swap(true) {
		return
	}
	e.ledger.end() // nothing is left to another process
	// From now on no ticket comes, and none goes: what the records say stands.
	found := newRows(byKey)
	for _, en := range e.entries.all {
		for _, t := range en.tickets {
			found.add(t)
			e.mu.breathe()
		}
		e.mu.breathe()
	}
	e.mu.Unlock()
	ts := found.sorted()
	e.mu.Lock()
	for _, t := range ts {
		t.req.pieces--
		e.journal.record(Released, t.entry, t.req, event{rng: t.Range, token: t.token, final: t.req.pieces == 0, reason: leaving})
		e.mu.breathe()
	}
}

// Ping returns when a turn could be made now: the engine is not stuck.
func (e *Engine) Ping() {
	e.mu.Lock()
	defer e.mu.Unlock()
}

const leaving = "the mount is going away"

func (e *Engine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	for _, t := range e.waiters.sorted() {
		if e.waiters.has(t) { // else one before it made way for it
			e.tickets.withdraw(t, errClosed, leaving)
		}
	}
	e.queries.fail(errClosed)
	e.askBacks.forget()
	e.broadcast()
}
