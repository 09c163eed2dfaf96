package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"dmxfs/locks"
	"dmxfs/locks/posix"
)

// Lock asks for r and returns when it is granted, denied, or when cancel is
// closed. Errors are those of package locks. After an error nothing is held
// that was not held before, with the exceptions that flock(2) and fcntl(2)
// make: a flock in another mode is given up before the new one is asked for.
func (e *Engine) Lock(cancel <-chan struct{}, r *locks.Request) (locks.Grant, error) {
	for began := time.Now(); ; {
		g, err := e.lock(cancel, r)
		if !errors.Is(err, errOther) || time.Since(began) >= otherTime {
			return g, err
		}
		r.WillWait()
		select {
		case <-cancel:
			return g, locks.ErrInterrupted
		case <-time.After(otherTime / 16):
		}
	}
}

// otherTime is for how long a request is made again that a member refuses since
// it serves the file by another algorithm. A number of a file that was removed
// may be that of a new file under another rule, and members forget the old one
// only when it has not been used for a second.
const otherTime = 4 * time.Second

// lock is one attempt of Lock.
func (e *Engine) lock(cancel <-chan struct{}, r *locks.Request) (locks.Grant, error) {
	if err := e.o.Recorder.Healthy(); err != nil {
		return locks.Grant{}, fmt.Errorf("%w: the journal cannot be written: %w", locks.ErrUnavailable, err)
	}
	e.pace(false)
	var limit chan struct{}
	if r.Patience > 0 {
		limit = make(chan struct{})
		defer time.AfterFunc(time.Duration(r.Patience)*time.Millisecond, func() { close(limit) }).Stop()
	}
	c := call{e, r, cancel, limit}
	e.mu.Lock()
	en, err := c.begin()
	if err != nil {
		e.mu.Unlock()
		return locks.Grant{}, err
	}
	req := &request{id: e.id(), Request: *r, asked: time.Now(), messages: en.messages}
	req.Waits = nil // belongs to the call
	e.record(Requested, en, req, event{rng: r.Range})
	if g, ok := e.already(en, req); ok {
		e.giveUpAside(en)
		e.mu.Unlock()
		return g, nil
	}
	if err := e.tooMany(en, &req.Request); err != nil {
		e.record(Denied, en, req, event{rng: r.Range, reason: err.Error(), final: true})
		e.settle(en)
		e.mu.Unlock()
		return locks.Grant{}, err
	}
	if t, err := e.alongside(en, req); t != nil {
		return e.deliver(cancel, en, t, r)
	} else if err != nil {
		e.mu.Unlock()
		return locks.Grant{}, err
	}
	e.asks(en, req)
	t := e.newTicket(en, req)
	t.stamp, t.since = e.places.take(r, req.asked)
	if e.gated(t) {
		en.gate = append(en.gate, t)
	} else {
		e.acquire(t)
	}
	if _, waits := e.waiters[t]; waits {
		c.await(t)
	}
	if t.err != nil {
		e.mu.Unlock()
		return locks.Grant{}, t.err
	}
	return e.deliver(cancel, en, t, r)
}

// call is one attempt of a program to have a lock.
type call struct {
	e      *Engine
	r      *locks.Request
	cancel <-chan struct{}
	limit  <-chan struct{} // closed when it has waited as long as it may; nil: never
}

// begin waits until this node can grant anything at all, and finds what it has of
// the file.
// REQUIRES: e.mu held; it is held again when begin returns.
func (c *call) begin() (*entry, error) {
	e, r := c.e, c.r
	err := e.member(c.cancel, c.limit, r)
	if err == nil && r.Try {
		if err = e.awaitClosed(c.cancel, r); err == nil {
			err = e.member(c.cancel, c.limit, r) // as before
		}
	}
	if err != nil {
		return nil, err
	}
	if en := e.entries[r.Key]; en != nil && !e.newRules && e.pinned[r.Key] == "" && en.alg.Name != e.o.Rule(r.Path) {
		e.giveUp(en)
	}
	known := e.entries[r.Key] != nil
	en := e.entry(r.Key, r.Path, "")
	if en == nil {
		return nil, fmt.Errorf("%w: the rule of %q names an unknown algorithm", locks.ErrUnavailable, r.Path)
	}
	if !known {
		clean := en.stale == en.fresh
		e.bear(en, r)
		e.opens(en, r.Mode, clean)
	}
	return en, nil
}

// await waits until t is decided, and withdraws it if the call ends before.
// REQUIRES: e.mu held; it is held again when await returns.
func (c *call) await(t *ticket) {
	e := c.e
	e.park(t)
	e.mu.Unlock()
	c.r.WillWait()
	timeout := t.await(c.cancel, c.limit)
	e.mu.Lock()
	if _, waits := e.waiters[t]; waits && timeout {
		why := e.waitsFor(t)
		e.withdraw(t, fmt.Errorf("%w: %s", locks.ErrTimeout, why), "waited as long as it may: "+why)
	} else if waits {
		e.places.put(c.r, t.place(), t.since, time.Now())
		e.wake()
		e.withdraw(t, locks.ErrInterrupted, "interrupted")
	}
}

// await returns when t is decided or withdrawn, when cancel is closed, or, with
// true, when limit is over.
func (t *ticket) await(cancel <-chan struct{}, limit <-chan struct{}) (timeout bool) {
	var grace <-chan time.Time
	for {
		select {
		case <-t.done:
			return false
		case <-cancel:
			if !t.req.Try {
				return false
			}
			cancel, grace = nil, time.After(tryGrace)
		case <-grace:
			return false
		case <-limit:
			return true
		}
	}
}

// tryGrace is how long a try still waits for its answer, which takes a round
// trip, when a signal comes. Without a cluster a try does not wait at all, and
// programs do not expect EINTR of it.
const tryGrace = 200 * time.Millisecond

// newTicket adds a waiting ticket for all of req.
func (e *Engine) newTicket(en *entry, req *request) *ticket {
	t := &ticket{
		Piece: posix.Piece{Part: locks.Part{ID: locks.TicketID(e.id()), Mode: req.Mode, Range: req.Range}, Handle: req.Handle},
		entry: en, req: req,
	}
	req.pieces = 1
	e.keep(t)
	e.waiters[t] = struct{}{}
	en.waits[t.Handle]++
	e.settle(en)
	return t
}

// acquire hands t to the machine.
func (e *Engine) acquire(t *ticket) {
	t.asks = true
	r := &t.req.Request
	e.step(t.entry, func(turn *locks.Turn) {
		t.entry.machine.Acquire(locks.Ticket{
			ID: t.ID, Owner: r.Owner, Mode: r.Mode, Range: r.Range, Try: r.Try, Stamp: t.stamp,
		}, turn)
	})
}

// member waits until this node can grant anything at all. A try does not wait.
// REQUIRES: e.mu held; it is held again when member returns.
func (e *Engine) member(cancel <-chan struct{}, limit <-chan struct{}, r *locks.Request) error {
	for {
		switch {
		case e.closed:
			return errClosed
		case e.phase != outside:
			return nil
		case r.Try:
			return fmt.Errorf("%w: this node is not a member of the cluster at the moment", locks.ErrUnavailable)
		}
		changed := e.changed
		e.mu.Unlock()
		r.WillWait()
		select {
		case <-changed:
		case <-cancel:
			e.mu.Lock()
			return locks.ErrInterrupted
		case <-limit:
			e.mu.Lock()
			return fmt.Errorf("%w: this node is not a member of the cluster at the moment", locks.ErrTimeout)
		}
		e.mu.Lock()
	}
}

// already serves what needs nobody's leave: a lock that the owner has, or a
// weaker one on bytes that it has. In class Flock it gives up a lock of the
// other mode, as flock(2) has it.
func (e *Engine) already(en *entry, req *request) (locks.Grant, bool) {
	if en.key.Class == locks.Open {
		return locks.Grant{}, false
	}
	o := en.owners[req.Owner]
	if o == nil {
		return locks.Grant{}, false
	}
	lo, hi := o.window(req.Range)
	if lo == hi || hi-lo > maxAtOnce {
		// Of so many pieces the machine is asked, which grants it as well.
		return locks.Grant{}, false
	}
	if en.key.Class == locks.Flock {
		if held := o.at(lo); held.Mode != req.Mode {
			e.release(en, o, locks.Whole, 0, "flock converts: given up before the new mode is asked for")
			return locks.Grant{}, false
		}
	} else if !o.has(lo, hi, req.Mode, req.Range) {
		return locks.Grant{}, false
	}
	token, same := locks.Token(0), true
	for t := range o.slice(lo, hi) {
		if t.Range.Overlaps(req.Range) {
			token = max(token, t.token)
			same = same && t.Mode == req.Mode && t.Handle == req.Handle
		}
	}
	g := locks.Grant{Token: token, Tenure: e.Tenure()}
	if same {
		e.record(Granted, en, req, event{rng: req.Range, token: token, final: true, reason: "its owner has it"})
		return g, true
	}
	t := &ticket{
		Piece: posix.Piece{Part: locks.Part{ID: locks.TicketID(e.id()), Mode: req.Mode, Range: req.Range}, Handle: req.Handle},
		entry: en, req: req, token: token, tenure: g.Tenure,
	}
	req.pieces, req.granted = 1, time.Now()
	e.keep(t)
	e.record(Granted, en, req, event{rng: req.Range, token: token})
	e.place(t)
	return g, true
}

// park prepares t for waiting.
func (e *Engine) park(t *ticket) {
	t.done = make(chan struct{})
	e.parked.add(t)
	t.due, t.probe = t.since.Add(tellAfter), t.since.Add(firstProbe)
	e.tellWanted(t.entry)
	if t.asks && t.entry.nested(t) {
		e.overtake(t)
	}
	if t.due.Before(t.probe) {
		e.wakeFor(t.due)
	} else {
		e.wakeFor(t.probe)
	}
}

// decided does what the outcome of a ticket asks for.
func (e *Engine) decided(en *entry, d locks.Outcome) {
	if b := en.back; b != nil && d.Ticket == b.ticket {
		e.cameBack(en)
		return
	}
	t := en.tickets[d.Ticket]
	e.endWait(t)
	now := time.Now()
	wait := event{rng: t.req.Range, wait: now.Sub(t.req.asked), messages: en.messages - t.req.messages}
	if d.Granted {
		t.token, t.tenure, t.req.granted = d.Token, e.Tenure(), now
		en.took(t)
		e.uses(en, t)
		if en.writes(t.Mode) {
			en.dirty = true
			en.passed = 0
		}
		wait.token = d.Token
		e.record(Granted, en, t.req, wait)
		en.departs(t)
	} else {
		wait.reason, wait.final = e.holders(en, t.req), true
		t.err = fmt.Errorf("%w by %s", locks.ErrWouldBlock, wait.reason)
		e.lose(t)
		e.record(Denied, en, t.req, wait)
		e.settle(en)
	}
	if t.done != nil {
		close(t.done)
	}
}

func (e *Engine) endWait(t *ticket) {
	delete(e.waiters, t)
	e.parked.remove(t)
	if n := t.entry.waits[t.Handle] - 1; n > 0 {
		t.entry.waits[t.Handle] = n
	} else {
		delete(t.entry.waits, t.Handle)
	}
}

// withdraw ends the waiting of t with err.
func (e *Engine) withdraw(t *ticket, err error, reason string) {
	en := t.entry
	e.endWait(t)
	e.lose(t)
	t.err = err
	if t.asks {
		e.step(en, func(turn *locks.Turn) { en.machine.Cancel(t.ID, turn) })
	} else {
		en.gate = slices.DeleteFunc(en.gate, func(g *ticket) bool { return g == t })
	}
	e.record(Withdrawn, en, t.req, event{rng: t.req.Range, wait: time.Since(t.req.asked),
		messages: en.messages - t.req.messages, reason: reason, final: true})
	e.settle(en)
	if t.done != nil {
		close(t.done)
	}
}

// releaseOpen gives up the lock of an open file.
func (e *Engine) releaseOpen(en *entry, t *ticket, reason string) {
	if en.handles[t.Handle] == t {
		delete(en.handles, t.Handle)
	}
	e.lose(t)
	t.req.pieces--
	e.record(Released, en, t.req, event{rng: t.Range, reason: reason, token: t.token, final: true})
	e.replace(en, []locks.TicketID{t.ID}, nil)
	e.settle(en)
}

// Unlock gives up what o holds of r, in whatever mode. It never waits and
// never fails: what is not held needs no unlock. It reports whether somebody
// goes on because of it, here or on another node.
func (e *Engine) Unlock(k locks.Key, o locks.OwnerID, r locks.Range) (handed bool) {
	return e.unlock(k, o, r, "unlocked")
}

// UnlockOwner gives up all that o holds: in class Posix, its process has
// closed a descriptor of the file (fcntl(2)).
func (e *Engine) UnlockOwner(k locks.Key, o locks.OwnerID) {
	e.unlock(k, o, locks.Whole, "a descriptor of the file was closed by its process")
}

func (e *Engine) unlock(k locks.Key, id locks.OwnerID, r locks.Range, reason string) (handed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.handed
	if en := e.entries[k]; en != nil && !e.left.Load() {
		e.undoAll(en, uint64(id), nil, reason, func(t *ticket) bool { return r.Contains(t.Range) })
		if o := en.owners[id]; o != nil {
			e.release(en, o, r, 0, reason)
		}
		e.giveUpAside(en)
	}
	return e.handed != before
}

// UnlockHandle gives up all that was taken through h, and ends what waits
// through it with ErrInterrupted: the open file is closed, or does without
// locks from now on, as why tells the journal.
func (e *Engine) UnlockHandle(k locks.Key, h locks.HandleID, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	en := e.entries[k]
	if en == nil || e.left.Load() {
		return
	}
	if en.waits[h] > 0 {
		for _, t := range e.waitingTickets() {
			if _, waits := e.waiters[t]; waits && t.entry == en && t.Handle == h {
				e.withdraw(t, locks.ErrInterrupted, "closed while waiting")
			}
		}
	}
	through := func(t *ticket) bool { return t.Handle == h }
	switch {
	case en.handles != nil:
		e.undoAll(en, uint64(h), nil, why, through)
		if t := en.handles[h]; t != nil {
			e.releaseOpen(en, t, why)
		}
	case k.Class == locks.Flock:
		// The owner of a flock is the open file.
		e.undoAll(en, uint64(h), nil, why, through)
		if o := en.owners[locks.OwnerID(h)]; o != nil {
			e.release(en, o, locks.Whole, 0, why)
		}
	default:
		for _, id := range en.through[h].sorted() {
			e.undoAll(en, id, nil, why, through)
			if o := en.owners[locks.OwnerID(id)]; o != nil {
				e.releaseThrough(en, o, h, why)
			}
		}
		e.giveUpAside(en)
	}
	if e.entries[k] == en {
		e.closedHandle(en, h)
	}
}
