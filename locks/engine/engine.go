package engine

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"dmxfs/locks"
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
	// Jitter returns a random number in [0,1). Default math/rand.
	Jitter func() float64
}

// phase is where the node is in the life of an epoch. What asks for active waits
// for the end of restoring, but for the machines that have begun: they grant, and
// speak to those of other members, who keep what comes until they are active.
type phase uint8

const (
	outside   phase = iota // no member: nothing can be granted
	frozen                 // a new epoch is coming or being restored
	restoring              // its machines begin, one after the other
	active
)

// errClosed is why calls end when the node leaves.
var errClosed = fmt.Errorf("%w: %s", locks.ErrUnavailable, leaving)

// Engine owns the machines of one node. Its methods are safe for concurrent
// use, but for those named in the package comment under Epochs.
type Engine struct {
	o     Options
	start time.Time

	tenure atomic.Uint64
	left   atomic.Bool // see Leave; set under mu

	mu      mutex
	breathe func() // of mu, for machines
	phase   phase
	began   locks.Moment // when the epoch became active
	closed  bool
	view    *locks.View // of the epoch that is active, or being restored
	entries map[locks.Key]*entry
	made    uint64 // entries, ever
	// clean holds the keys without an entry of which this node knows that
	// nobody else wrote since its last grant.
	clean *recent
	// forgot is when an entry was dropped last that others may have written.
	forgot locks.Moment
	// floor is at least the token of every machine that was dropped.
	floor locks.Token
	// idle lists entries without a ticket, the longest idle first.
	idle *list.List
	// waiters are the tickets that wait.
	waiters map[*ticket]struct{}
	parked  parked
	places  places
	damage  damage
	usage   map[user]*usage
	queries map[uint64]*query
	// The probes for deadlocks: rounds begun here, places that probes of all
	// nodes have come to, cycles that are being confirmed here.
	lastRound uint64
	seen      map[seenProbe]bool
	cycles    map[uint64]*cycle
	// changed is closed, and replaced, when the phase or the tenure changes.
	changed chan struct{}
	sync    *syncing
	// newRules: Rule has changed since the last epoch was restored. pinned
	// are the algorithms of keys of which members told that they hold
	// something. See change.go.
	newRules bool
	pinned   map[locks.Key]string
	// stated: in this pause between two epochs the machines have been asked
	// for their states, and those that are made are.
	stated bool
	early  early
	// draining: the early frames of this epoch are being received.
	draining bool
	// See delegation.go.
	deleg      delegations
	delegTimes delegationTimes
	turns      []*locks.Turn
	// askingBack are the entries with a guess that is not answered, and some
	// more. See askback.go.
	askingBack []*entry
	// workers drain outboxes; flushing counts those that write out just now,
	// flushed is told when one has.
	workers  sync.WaitGroup
	ended    bool // Run waits for the workers
	flushing int
	flushed  *sync.Cond
	kick     chan struct{} // wakes Run
	sweepAt  time.Time     // when Run sweeps next, by itself
	lastID   uint64        // tickets, requests and queries
	yielder  Yielder       // nil: nobody wants to know
	handed   uint64        // turns in which somebody was let in, or told something
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
	e := &Engine{
		o:       o,
		start:   time.Now(),
		entries: map[locks.Key]*entry{},
		pinned:  map[locks.Key]string{},
		clean:   newRecent(maxClean),
		damage:  newDamage(),
		idle:    list.New(),
		waiters: map[*ticket]struct{}{},
		parked:  newParked(),
		usage:   map[user]*usage{},
		queries: map[uint64]*query{},
		seen:    map[seenProbe]bool{},
		cycles:  map[uint64]*cycle{},
		changed: make(chan struct{}),
		early:   early{},
		kick:    make(chan struct{}, 1),
	}
	e.mu.start = e.start
	e.breathe = func() { e.mu.breathe() }
	e.flushed = sync.NewCond(&e.mu)
	e.yielder, _ = o.Files.(Yielder)
	e.tenure.Store(1)
	return e
}

// Moment is the present one.
func (e *Engine) Moment() locks.Moment { return locks.Moment(time.Since(e.start)) + 1 }

// Tenure is the present one.
func (e *Engine) Tenure() locks.Tenure { return locks.Tenure(e.tenure.Load()) }

// Admit is asked directly before I/O under a lock that was granted in tenure
// t. It returns nil when the I/O may begin now, waits while this node is
// suspended, and returns [locks.ErrLost] when the tenure is over.
func (e *Engine) Admit(cancel <-chan struct{}, t locks.Tenure) error {
	for {
		if e.Tenure() != t {
			return locks.ErrLost
		}
		if e.o.Live(e.o.Guard) {
			return nil
		}
		e.mu.Lock()
		changed, closed := e.changed, e.closed
		e.mu.Unlock()
		if closed {
			return errClosed
		}
		// Live again, or expelled: the driver calls Resume or Expelled. The
		// condition is looked at once more, since it may have come true
		// before changed was read.
		if e.Tenure() != t || e.o.Live(e.o.Guard) {
			continue
		}
		select {
		case <-changed:
		case <-cancel:
			return locks.ErrInterrupted
		}
	}
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

// resumeAll lets every machine with a waiting ticket grant what it can.
func (e *Engine) resumeAll() {
	seen := map[*entry]bool{}
	for _, t := range e.waitingTickets() {
		if en := t.entry; !seen[en] {
			seen[en] = true
			e.step(en, func(turn *locks.Turn) { en.machine.Resume(turn) })
		}
	}
}

// waitingTickets lists the tickets that wait, the oldest first.
func (e *Engine) waitingTickets() []*ticket {
	ts := slices.Collect(maps.Keys(e.waiters))
	slices.SortFunc(ts, func(a, b *ticket) int { return cmp.Compare(a.ID, b.ID) })
	return ts
}

// broadcast wakes everybody who waits for a change of phase or tenure.
// REQUIRES: e.mu held.
func (e *Engine) broadcast() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// step makes one turn of en's machine and does what it asks for. It reports
// whether something that this node could do went to a peer.
// REQUIRES: e.mu held.
func (e *Engine) step(en *entry, f func(*locks.Turn)) (gave bool) {
	var t *locks.Turn
	if n := len(e.turns); n > 0 {
		t, e.turns = e.turns[n-1], e.turns[:n-1]
	} else {
		t = new(locks.Turn)
	}
	t.Reset(e.phase >= restoring && len(en.barrier) == 0 && e.o.Live(0))
	f(t)
	if t.Stale {
		en.stale++
	}
	if len(t.Send)+len(t.Done) > 0 {
		e.handed++
	}
	e.post(en, t)
	for _, d := range t.Done {
		e.decided(en, d)
	}
	e.openGate(en)
	e.tellWanted(en)
	gave = t.Handover && len(t.Send) > 0
	e.turns = append(e.turns, t)
	return gave
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
			e.mu.Lock()
			e.ended = true
			e.mu.Unlock()
			e.workers.Wait()
			return context.Cause(ctx)
		case <-e.kick:
			if left := time.Until(quiet); left > 0 {
				e.mu.Lock()
				e.sweepAt = quiet
				e.mu.Unlock()
				timer.Reset(left)
				continue
			}
		case <-timer.C:
		}
		e.mu.Lock()
		began := time.Now()
		// What becomes due while the sweep lets others go on, it may have passed.
		e.sweepAt = time.Time{}
		next := e.sweep(began)
		// A sweep looks at all that wait. When those are many, sweeps are few.
		quiet = time.Now()
		quiet = quiet.Add(min(sweepShare*quiet.Sub(began), maxQuiet))
		e.sweepAt = began.Add(next)
		if e.sweepAt.Before(quiet) {
			e.sweepAt = quiet
		}
		e.mu.Unlock()
		timer.Reset(max(time.Until(e.sweepAt), 1))
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
	// From now on no ticket comes, and none goes: what the records say stands.
	found := newRows(byKey)
	for _, en := range e.entries {
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
		e.record(Released, t.entry, t.req, event{rng: t.Range, token: t.token, final: t.req.pieces == 0, reason: leaving})
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
	for _, t := range e.waitingTickets() {
		if _, waits := e.waiters[t]; waits { // else one before it made way for it
			e.withdraw(t, errClosed, leaving)
		}
	}
	for _, q := range e.queries {
		q.fail(errClosed)
	}
	e.forgetAskingBack()
	e.broadcast()
}

func (e *Engine) id() uint64 {
	e.lastID++
	return e.lastID
}

// wakeFor makes Run look for work at t at the latest. Most waits are over long
// before anything is due for them, and most sweeps would come in time anyway.
func (e *Engine) wakeFor(t time.Time) {
	if e.sweepAt.IsZero() || t.Before(e.sweepAt) {
		e.wake()
	}
}

// wake makes Run look for work.
func (e *Engine) wake() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}
