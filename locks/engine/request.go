package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// calls serve programs: what they ask for, and what they give up.
type calls struct {
	*base
	alarm    *alarm
	journal  *journal
	ledger   *ledger
	quota    *quota
	waiters  *waiters
	entries  *entries
	damages  *damages
	stepper  *stepper
	askBacks *askBacks
	reports  *reports
	tickets  *tickets
	holdings *holdings
	lent     *lent
	borrowed *borrowed
	heirs    *heirs
	sweeper  *sweeper
	closings *closings
}

// lock is [Engine.Lock].
func (cl *calls) lock(cancel <-chan struct{}, r *locks.Request) (locks.Grant, error) {
	for began := time.Now(); ; {
		g, err := cl.attempt(cancel, r)
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

// lockNow is [Engine.LockNow]. Its caller holds up who else works in the directory of the
// file, and the kernel may not be told to drop what it has of that. So all is found out and
// done while mu is held.
func (cl *calls) lockNow(r *locks.Request) (locks.Grant, bool) {
	if cl.o.Recorder.Healthy() != nil || cl.journal.crowded() {
		return locks.Grant{}, false
	}
	a := newAsked(r)
	c := call{calls: cl, r: r, cancel: over}
	cl.mu.Lock()
	if !cl.isOwn(r) {
		cl.mu.Unlock()
		return locks.Grant{}, false
	}
	en, err := c.begin()
	if err != nil || !en.alg.Shared || en.stale != en.fresh { // else others are asked: the rules are new
		cl.mu.Unlock()
		return locks.Grant{}, false
	}
	g, err := c.decide(en, a)
	return g, err == nil
}

// isOwn reports whether all others have delegated the file of r to this node, nobody can
// have written it, and its program need not be told anything.
// REQUIRES: mu held.
func (cl *calls) isOwn(r *locks.Request) bool {
	return cl.entries.all[r.Key] == nil && cl.entries.born(r) && cl.borrowed.covers(r.Key, r.Mode) &&
		cl.o.Live(0) && !cl.damages.told.has(r.Key) && cl.quota.hasRoom(r)
}

// over is a call that does not wait.
var over = closedChannel()

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// otherTime is for how long a request is made again that a member refuses since
// it serves the file by another algorithm. A number of a file that was removed
// may be that of a new file under another rule, and members forget the old one
// only when it has not been used for a second.
const otherTime = 4 * time.Second

// attempt is one attempt of Lock.
func (cl *calls) attempt(cancel <-chan struct{}, r *locks.Request) (locks.Grant, error) {
	if err := cl.o.Recorder.Healthy(); err != nil {
		return locks.Grant{}, fmt.Errorf("%w: the journal cannot be written: %w", locks.ErrUnavailable, err)
	}
	cl.journal.pace(false)
	c := call{calls: cl, r: r, cancel: cancel}
	if r.Patience > 0 {
		limit := make(chan struct{})
		c.limit = limit
		c.timer = time.AfterFunc(time.Duration(r.Patience)*time.Millisecond, func() { close(limit) })
		defer c.timer.Stop()
	}
	a := newAsked(r)
	cl.mu.Lock()
	en, err := c.begin()
	if err != nil {
		cl.mu.Unlock()
		return locks.Grant{}, err
	}
	if t := cl.heirs.claim(r); t != nil {
		return c.goOn(en, t)
	}
	return c.decide(en, a)
}

// decide asks for a, and returns when that is decided.
// REQUIRES: c.mu held. It is released.
func (c *call) decide(en *entry, a *asked) (locks.Grant, error) {
	cl, r := c.calls, c.r
	req := a.of(cl.id(), en, r)
	cl.journal.record(Requested, en, req, event{at: req.asked, rng: r.Range})
	if g, ok := cl.already(en, a); ok {
		cl.holdings.giveUpAside(en)
		cl.mu.Unlock()
		return g, nil
	}
	if err := cl.quota.tooMany(en, req); err != nil {
		cl.journal.record(Denied, en, req, event{rng: r.Range, reason: err.Error(), final: true})
		cl.entries.settle(en)
		cl.mu.Unlock()
		return locks.Grant{}, err
	}
	if t, err := cl.alongside(en, a); t != nil {
		return cl.deliver(c.cancel, en, t, r)
	} else if err != nil {
		cl.mu.Unlock()
		return locks.Grant{}, err
	}
	cl.askBacks.asks(en, req)
	t := cl.tickets.add(en, a)
	if s, since := cl.tickets.places.take(r, req.asked); since != req.asked {
		w := t.own()
		w.stamp, w.since = s, since
	}
	if cl.tickets.gated(t) {
		en.gate.wait(t)
	} else {
		cl.stepper.acquire(t)
	}
	return c.finish(en, t)
}

// goOn goes on with t where the process before this one has left it.
// REQUIRES: c.mu held. It is released.
func (c *call) goOn(en *entry, t *ticket) (locks.Grant, error) {
	if c.timer != nil && c.timer.Stop() {
		c.timer.Reset(max(0, time.Duration(c.r.Patience)*time.Millisecond-time.Since(t.req.asked)))
	}
	return c.finish(en, t)
}

// finish waits until t is decided, and tells of it: here a call of a program blocks.
// REQUIRES: c.mu held. It is released.
func (c *call) finish(en *entry, t *ticket) (locks.Grant, error) {
	if c.waiters.has(t) {
		c.await(t)
	}
	if t.err != nil {
		c.mu.Unlock()
		return locks.Grant{}, t.err
	}
	return c.deliver(c.cancel, en, t, c.r)
}

// call is one attempt of a program to have a lock.
type call struct {
	*calls
	r      *locks.Request
	cancel <-chan struct{}
	limit  <-chan struct{} // closed by timer, when it has waited as long as it may; nil: never
	timer  *time.Timer
}

// begin waits until this node can grant anything at all, and finds what it has of
// the file.
// REQUIRES: c.mu held; it is held again when begin returns.
func (c *call) begin() (*entry, error) {
	r := c.r
	err := c.member(c.cancel, c.limit, r)
	if err == nil && r.Try {
		if err = c.closings.await(c.cancel, r); err == nil {
			err = c.member(c.cancel, c.limit, r) // as before
		}
	}
	if err != nil {
		return nil, err
	}
	if en := c.entries.all[r.Key]; en != nil && !c.newRules && c.entries.pinned[r.Key] == "" && en.alg.Name != c.o.Rule(r.Path) {
		c.sweeper.giveUp(en)
	}
	known := c.entries.all[r.Key] != nil
	en := c.entries.entry(r.Key, r.Path, "")
	if en == nil {
		return nil, fmt.Errorf("%w: the rule of %q names an unknown algorithm", locks.ErrUnavailable, r.Path)
	}
	if !known {
		clean := en.stale == en.fresh
		c.entries.bear(en, r)
		c.lent.opens(en, clean)
		c.borrowed.opens(en, r.Mode)
	}
	return en, nil
}

// await waits until t is decided, and withdraws it if the call ends before.
// REQUIRES: c.mu held; it is held again when await returns.
func (c *call) await(t *ticket) {
	c.tickets.park(t)
	c.mu.Unlock()
	c.r.WillWait()
	timeout := t.await(c.cancel, c.limit)
	c.mu.Lock()
	switch waits := c.waiters.has(t); {
	case c.bequeathed && waits:
		t.own().err = locks.ErrBequeathed
	case waits && timeout:
		why := c.reports.waitsFor(t)
		c.tickets.withdraw(t, fmt.Errorf("%w: %s", locks.ErrTimeout, why), "waited as long as it may: "+why)
	case waits:
		c.tickets.places.put(c.r, t.place(), t.since, time.Now())
		c.alarm.wake()
		c.tickets.withdraw(t, locks.ErrInterrupted, "interrupted")
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

// already serves what needs nobody's leave: a lock that the owner has, or a
// weaker one on bytes that it has. In class Flock it gives up a lock of the
// other mode, as flock(2) has it.
func (cl *calls) already(en *entry, a *asked) (locks.Grant, bool) {
	req := &a.request
	if en.key.Class == locks.Open {
		return locks.Grant{}, false
	}
	o := en.owners[req.Owner]
	if o == nil {
		return locks.Grant{}, false
	}
	lo, hi := o.window(req.Range)
	if lo == hi || hi-lo > maxAtOnce && !cl.beside(en) {
		// Of so many pieces the machine is asked, which grants it as well, unless
		// they are from before a change of the rules, of which it knows nothing.
		return locks.Grant{}, false
	}
	if en.key.Class == locks.Flock {
		if held := o.at(lo); held.Mode != req.Mode {
			cl.holdings.release(en, o, locks.Whole, 0, "flock converts: given up before the new mode is asked for")
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
	g := locks.Grant{Token: token, Tenure: cl.Tenure()}
	if same {
		cl.journal.record(Granted, en, req, event{rng: req.Range, token: token, final: true, reason: "its owner has it"})
		return g, true
	}
	t := a.all(cl.id(), en)
	t.token, t.tenure, req.granted = token, g.Tenure, time.Now()
	cl.quota.keep(t)
	cl.journal.record(Granted, en, req, event{at: req.granted, rng: req.Range, token: token})
	cl.holdings.place(t)
	return g, true
}

// alongside answers, while there is a barrier, what no machine will: a try;
// and a request of somebody who holds something from before the change, which
// would wait for that to be given up. If nobody else holds any, it is granted.
// If others do, fcntl is told that it would be a deadlock; an open waits until
// the other open files of its process are closed, or give way.
func (cl *calls) alongside(en *entry, a *asked) (*ticket, error) {
	req := &a.request
	if len(en.barrier) == 0 || cl.phase != active || !cl.o.Live(0) {
		return nil, nil
	}
	mine, others := false, len(en.barrier) > 1 || !cl.beside(en)
	token := locks.Token(0)
	for _, t := range en.tickets {
		switch {
		case !t.held:
		case t.req.Owner == req.Owner || en.isOpen() && t.req.Program.SameProcess(&req.Program):
			mine = true
			token = max(token, t.token)
		default:
			others = true
		}
	}
	if mine && !others {
		t := cl.tickets.add(en, a)
		cl.tickets.decided(en, locks.Outcome{Ticket: t.ID, Granted: true, Token: token})
		return t, nil
	}
	var err error
	switch {
	case req.Try:
		err = errBarrier
	case mine && !en.isOpen():
		err = fmt.Errorf("%w: others hold it, too, from before the rules were changed", locks.ErrDeadlock)
	default:
		return nil, nil
	}
	cl.journal.record(Denied, en, req, event{rng: req.Range, reason: err.Error(), final: true})
	cl.entries.settle(en)
	return nil, err
}

func (cl *calls) unlock(k locks.Key, id locks.OwnerID, r locks.Range, reason string) (handed bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	before := cl.stepper.handed
	if en := cl.entries.all[k]; en != nil && !cl.left.Load() {
		cl.holdings.undoAll(en, uint64(id), nil, reason, func(t *ticket) bool { return r.Contains(t.Range) })
		if o := en.owners[id]; o != nil {
			cl.holdings.release(en, o, r, 0, reason)
		}
		cl.holdings.giveUpAside(en)
	}
	return cl.stepper.handed != before
}

// unlockHandle is [Engine.UnlockHandle].
func (cl *calls) unlockHandle(k locks.Key, h locks.HandleID, why string) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	en := cl.entries.all[k]
	if en == nil || cl.left.Load() {
		return
	}
	if en.waits[h] > 0 {
		for _, t := range cl.waiters.sorted() {
			if cl.waiters.has(t) && t.entry == en && t.Handle == h {
				cl.tickets.withdraw(t, locks.ErrInterrupted, "closed while waiting")
			}
		}
	}
	through := func(t *ticket) bool { return t.Handle == h }
	switch {
	case en.isOpen():
		cl.holdings.undoAll(en, uint64(h), nil, why, through)
		if t := en.handles[h]; t != nil {
			cl.holdings.releaseOpen(en, t, why)
		}
	case k.Class == locks.Flock:
		// The owner of a flock is the open file.
		cl.holdings.undoAll(en, uint64(h), nil, why, through)
		if o := en.owners[locks.OwnerID(h)]; o != nil {
			cl.holdings.release(en, o, locks.Whole, 0, why)
		}
	default:
		for _, id := range en.through[h].sorted() {
			cl.holdings.undoAll(en, id, nil, why, through)
			if o := en.owners[locks.OwnerID(id)]; o != nil {
				cl.holdings.releaseThrough(en, o, h, why)
			}
		}
		cl.holdings.giveUpAside(en)
	}
	if cl.entries.all[k] == en {
		cl.closings.handleClosed(en, h)
	}
}
