package fusefs

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// openState is where a handle stands with its open lock.
type openState uint8

const (
	// openNone: it has none and will not ask: the rule wants none, or its
	// process locks for itself.
	openNone openState = iota
	// openHeld: I/O may go on while the tenure lasts.
	openHeld
	// openWaiting: it was asked for, or is just being given up; I/O waits.
	openWaiting
	// openIdle: it gave way to another node, or could not be had; the next
	// I/O asks again.
	openIdle
	// openShared: it lets other nodes read, and holds a lock for reading by
	// which no other one writes. The next I/O asks for its own again.
	openShared

	openStates = iota
)

// openLock is the open lock of a handle. Guarded by handle.mu.
type openLock struct {
	state      openState
	req        locks.Request // what is asked for
	yields     yields
	untilClose bool   // see Rule.UntilClose
	alone      bool   // it is between processes, see Rule.PerProcess
	gen        uint64 // of the rules that req and yields are by
	// stream: it has given way while it was in use. shared: it has let others
	// read meanwhile. See yielder.go.
	stream, shared bool
	tenure         locks.Tenure
	token          locks.Token
	wait           *acquisition // what I/O waits for in openWaiting
}

// acquisition is the change that ends the state openWaiting.
type acquisition struct {
	done   chan struct{} // closed when it is over
	again  bool          // see lockLater
	cancel chan struct{} // closed to withdraw the request; nil when there is none
	shared atomic.Bool   // see askAgain
	err    error         // why there is no lock; read it after done
}

// sharedOwner is the owner of the open locks that all processes of a node share.
const sharedOwner locks.OwnerID = 1

// givenUp is why an open lock is released of a file that is still open.
const givenUp = "its program locks for itself"

// openLocks asks for those of handles, and gives them up.
type openLocks struct {
	*base
	unprotected *unprotected
	records     *lockRecords
	rules       *rules
}

// askFor asks for the open lock of h, which is in openWaiting, and waits for
// it: for its owner by the rules of this moment. If they have changed while it
// waited, so that it would be another owner's, it asks again.
//
// in is of the request that asks; nil: it is done in the background.
func (o *openLocks) askFor(cancel <-chan struct{}, h *handle, try bool, in *fuse.InHeader) (req locks.Request, g locks.Grant, err error) {
	for {
		req = o.request(h)
		if req.Try = try; in != nil {
			req.Waits = o.onWait(in)
			g, err = o.lockFor(cancel, in, &req, true)
		} else {
			g, err = o.lockBehind(cancel, &req)
		}
		if err != nil || o.request(h).Owner == req.Owner {
			return req, g, err
		}
		o.locker.UnlockHandle(req.Key, req.Handle, "the rules have changed")
	}
}

// request is what h asks for by the present rules. (Whether it needs an open
// lock at all was decided when it was opened.)
func (o *openLocks) request(h *handle) locks.Request {
	h.mu.RLock()
	req, gen := h.open.req, h.open.gen
	h.mu.RUnlock()
	if gen == o.rules.gen.Load() {
		return req
	}
	_, path := o.tree.identify(h.n)
	rule := o.rules.of(h.n, path)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open.gen, h.open.yields = rule.gen, rule.yields()
	h.open.req.Owner, h.open.req.Patience = o.openOwner(rule, h), rule.patience()
	return h.open.req
}

// lockOpened asks for the open lock of h, which is in openWaiting, and waits
// for it. Without an error h holds it, or needs it no more.
func (o *openLocks) lockOpened(cancel <-chan struct{}, h *handle, try bool, in *fuse.InHeader) error {
	req, g, err := o.askFor(cancel, h, try, in)
	for end := o.now() + h.cycles(); errors.Is(err, locks.ErrDeadlock) && o.now() < end; {
		select {
		case <-cancel:
		case <-time.After(cycleTime):
			req, g, err = o.askFor(cancel, h, try, in)
			continue
		}
		break
	}
	h.mu.Lock()
	wanted := h.open.state == openWaiting
	if wanted && err == nil {
		o.granted(h, g)
	}
	h.mu.Unlock()
	if wanted || errors.Is(err, locks.ErrBequeathed) {
		return err
	}
	// Given up meanwhile, because its process began to lock for itself.
	if err == nil {
		o.locker.UnlockHandle(req.Key, req.Handle, givenUp)
	}
	return nil
}

// REQUIRES: h.mu held.
func (o *openLocks) granted(h *handle, g locks.Grant) {
	h.open.tenure, h.open.token = g.Tenure, g.Token
	h.used.Store(o.now())
	o.setState(h, openHeld)
}

// lockNow takes the open lock of h, which is in openWaiting, if nothing has to be waited
// for. It is cheaper than lockLater, for which another thread may have to be woken up.
func (o *openLocks) lockNow(h *handle) bool {
	if d := o.redo.dropped; d != nil && !closed(d) {
		return false // see awaitDropped
	}
	req := o.request(h)
	g, ok := o.locker.LockNow(&req)
	if !ok {
		return false
	}
	if o.request(h).Owner != req.Owner {
		o.locker.UnlockHandle(req.Key, req.Handle, "the rules have changed")
		return false
	}
	h.mu.Lock()
	wanted := h.open.state == openWaiting
	if wanted {
		o.granted(h, g)
	}
	h.mu.Unlock()
	if !wanted {
		o.locker.UnlockHandle(req.Key, req.Handle, givenUp)
	}
	return true
}

// lockLater asks for the open lock of h without waiting for it; I/O through h
// does. again says that h has given way, and another host may have renamed the
// file since. REQUIRES: h.mu held, or h not known to anybody else yet.
func (o *openLocks) lockLater(h *handle, again bool) *acquisition {
	a := &acquisition{done: make(chan struct{}), cancel: make(chan struct{}), again: again}
	shared := h.open.state == openShared
	a.shared.Store(shared)
	h.open.wait = a
	o.setState(h, openWaiting)
	o.background(func() {
		req, g, err := o.askAgain(a, h, again, shared)
		if errors.Is(err, locks.ErrBequeathed) {
			return // it is in the state, see savedHandle
		}
		if err == nil && again && o.tree.leads(h.n, req.Key.File) != nil {
			o.locker.UnlockHandle(req.Key, req.Handle, "another host has renamed the file")
			o.fenced(h)
			err = locks.ErrLost
		}
		h.mu.Lock()
		wanted := h.open.wait == a
		if wanted {
			h.open.wait = nil
			if a.err = err; err == nil {
				o.granted(h, g)
			} else {
				o.setState(h, openIdle)
			}
		}
		h.mu.Unlock()
		close(a.done)
		if !wanted && err == nil { // closed, or given up
			o.locker.UnlockHandle(req.Key, req.Handle, "not needed any more")
		}
	})
	return a
}

// askAgain is askFor in the background. With shared h has kept a lock for
// reading since it had its own; without an error that is replaced.
//
// Open locks that are idle give way, so a cycle of hosts that wait for them is
// no deadlock: it opens by itself. I/O asks until it does, since programs do not
// expect that it fails.
func (o *openLocks) askAgain(a *acquisition, h *handle, again, shared bool) (locks.Request, locks.Grant, error) {
	for {
		req, g, err := o.askFor(a.cancel, h, false, nil)
		if err == nil || errors.Is(err, locks.ErrBequeathed) {
			return req, g, err
		}
		if shared {
			shared = false
			a.shared.Store(false)
			o.locker.UnlockHandle(req.Key, req.Handle, "it could not be one for writing again")
			if errors.Is(err, locks.ErrLost) {
				o.fenced(h) // others may have written since
			}
		}
		if !again || h.neverYields() || !errors.Is(err, locks.ErrDeadlock) {
			return req, g, err
		}
		select {
		case <-a.cancel:
			return req, g, err
		case <-time.After(cycleTime):
		}
	}
}

// cycleTime is the pause before an open lock is asked for again that would be
// part of a cycle.
const cycleTime = 20 * time.Millisecond

// cycles is for how many milliseconds open(2) asks again: until what was only
// read, or can be shared, has given way.
func (h *handle) cycles() int64 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.open.yields.shared == 0 {
		return 0
	}
	return h.open.yields.shared + 500
}

// giveUp ends the open lock of h for good.
func (o *openLocks) giveUp(h *handle) {
	h.mu.RLock()
	none := h.open.state == openNone
	h.mu.RUnlock()
	if none {
		return
	}
	h.mu.Lock() // after the I/O that is under way
	if h.open.state == openNone {
		h.mu.Unlock()
		return
	}
	o.withdraw(h)
	o.setState(h, openNone)
	key := h.open.req.Key
	h.mu.Unlock()
	o.locker.UnlockHandle(key, h.lockID(), givenUp)
}

// withdraw ends the acquisition that is under way, if any; I/O that waits for
// it looks at the state again. REQUIRES: h.mu held.
func (o *openLocks) withdraw(h *handle) {
	if a := h.open.wait; a != nil {
		h.open.wait = nil
		if a.cancel != nil {
			close(a.cancel)
		}
	}
}

// locksItself ends the open lock of h, whose program locks for itself.
func (o *openLocks) locksItself(h *handle) {
	if !h.open.untilClose {
		o.giveUp(h)
	}
}

// locksForItself is called when p locks or unlocks explicitly through h. From
// then on that is how p, and the process that opened h, keep their files
// apart: their open locks would only make them wait for each other.
func (o *openLocks) locksForItself(h *handle, p *process) {
	o.locksItself(h)
	for _, q := range [...]*process{h.proc, p} {
		if q == nil || q.selfLocking.Load() {
			continue
		}
		q.selfLocking.Store(true)
		o.ledger.process(q)
		q.mu.Lock()
		hs := make([]*handle, 0, len(q.handles))
		for other := range q.handles {
			hs = append(hs, other)
		}
		q.mu.Unlock()
		for _, other := range hs {
			o.locksItself(other)
		}
	}
}

// newHandle describes a handle that is to be opened; it is not known to
// anybody yet. Its open.state tells whether it needs an open lock: openWaiting
// or openNone.
func (o *openLocks) newHandle(n *node, flags uint32, truncate bool, in *fuse.InHeader) *handle {
	access := flags & unix.O_ACCMODE
	h := &handle{
		n: n, fd: -1,
		flags: int(flags) & keptFlags,
		write: access != unix.O_RDONLY, appends: flags&unix.O_APPEND != 0,
		mixed: access == unix.O_RDWR,
		proc:  o.procs.find(in.Pid),
	}
	if o.storage.KeepsNames && !h.write {
		h.flags |= unix.O_DIRECT
	}
	h.open.state = openNone
	file, path := o.tree.identify(n)
	rule := o.rules.of(n, path)
	if !rule.Open || h.proc.isSelfLocking() && !rule.UntilClose {
		h.id = o.newID()
		return h
	}
	h.open.untilClose, h.open.alone = rule.UntilClose, rule.PerProcess
	mode := locks.Read
	if h.write || truncate {
		mode = locks.Write
	}
	if o.opts.WriteThrough && o.storage.ClientCache && h.write {
		// What a stopped daemon has written must not lie in the client's
		// cache when its lock is given to another node.
		h.flags |= unix.O_DSYNC
	}
	h.open.state = openWaiting
	h.open.gen, h.open.yields = rule.gen, rule.yields()
	key := locks.Key{File: file, Class: locks.Open}
	h.id = o.handleFor(in, key)
	h.open.req = locks.Request{
		Key: key, Path: path,
		Owner: o.openOwner(rule, h), Handle: h.lockID(),
		Mode: mode, Range: locks.Whole, Patience: rule.patience(), Program: o.procs.program(h.proc, in),
	}
	return h
}

// openOwner is the owner of an open lock: this node; or, between processes,
// the process, and where that is not known the handle.
func (o *openLocks) openOwner(rule *nodeRule, h *handle) locks.OwnerID {
	switch {
	case !rule.PerProcess:
		return sharedOwner
	case h.proc != nil:
		return h.proc.owner
	}
	return locks.OwnerID(h.id) | 1<<63
}

// abandon undoes attach and the open lock of a handle that is not opened after all.
func (o *openLocks) abandon(h *handle) {
	h.mu.Lock()
	h.released = true
	o.withdraw(h)
	locked, key := h.open.state != openNone, h.open.req.Key
	fd := h.fd
	h.mu.Unlock()
	closeFD(fd)
	if locked {
		o.locker.UnlockHandle(key, h.lockID(), "closed")
	}
	o.detach(h)
}

// needsLock reports whether I/O through h has to wait for its open lock, or to
// take it again. REQUIRES: h.mu held for reading.
func (h *handle) needsLock(what use) bool {
	switch h.open.state {
	case openWaiting, openIdle:
		return what != syncs
	case openShared:
		return what > looks
	}
	return false
}

func (h *handle) neverYields() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.open.yields.after == 0
}
