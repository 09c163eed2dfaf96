package fusefs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/dmxfs/dmxfs/locks"
)

// admission is the permission for one piece of I/O on a handle, whose holder
// holds handle.mu for reading; or for a change by name, see fence.go.
type admission struct {
	h         *handle // nil: by name
	from      *handle // to which it is admitted as well; or nil
	under     *span   // nil: through h
	protected bool
	tenure    locks.Tenure
	explicit  bool // explicit locks are among those that protect it
	leased    bool // it is counted with the lease of names
	waited    bool // it has waited for the open lock of h
	unsure    bool // it has waited until the node was sure of its locks
}

// leave ends a.
func (f *fence) leave(a *admission) {
	if a.from != nil {
		a.from.mu.RUnlock()
	}
	if a.h != nil {
		a.h.mu.RUnlock()
	} else {
		f.underway.end(a.under)
	}
}

// use is what a handle is used for.
type use uint8

const (
	syncs   use = iota // what was written: under the open lock, which may have been given up since
	looks              // at attributes, which is no use of the open lock
	reads              // what is in the file
	changes            // it passes the fence, see change
)

// enter waits until I/O through h may start: for the open lock of h if it has
// to be taken (again), and while the node is suspended if a lock protects the
// I/O. Without an error the caller does its system call at once and then calls
// leave; more than maxPiece bytes it does in pieces, each with an admission of
// its own.
//
// A wait here keeps pages of the file locked in the kernel. It is announced
// (see parkRequest), because whoever drops the pages of the file would wait for it.
func (f *fence) enter(cancel <-chan struct{}, h *handle, in *fuse.InHeader, what use) (admission, fuse.Status) {
	var w closeWait
	waited, unsure := false, false
	for {
		h.mu.RLock()
		if h.lost.Load() {
			h.mu.RUnlock()
			return admission{}, fuse.EIO
		}
		if h.needsLock(what) {
			h.mu.RUnlock()
			if st := f.awaitLock(cancel, h, in, what); !st.Ok() {
				return admission{}, st
			}
			waited = true
			continue
		}
		a := admission{h: h, waited: waited, unsure: unsure}
		f.protection(&a, h, in, what)
		h.uses(what, f.now())
		st, again := f.admit(cancel, &a, in, &w)
		if again {
			unsure = true
			continue
		}
		return a, st
	}
}

// enterBoth is enter for a copy from one handle to another. It waits for one
// while it is not admitted to the other: that could be a deadlock.
func (f *fence) enterBoth(cancel <-chan struct{}, c *change) (admission, fuse.Status) {
	for {
		from, st := f.enter(cancel, c.from, c.in, reads)
		if !st.Ok() {
			return from, st
		}
		f.leave(&from)
		a, st := f.enter(cancel, c.h, c.in, changes)
		if !st.Ok() {
			return a, st
		}
		// Now the first one once more, if it can be had at once.
		if c.from.mu.TryRLock() {
			a.from = c.from
			ready := !c.from.lost.Load() && !c.from.needsLock(reads)
			f.protection(&a, c.from, nil, reads)
			if ready && (!a.protected || f.locker.Admit(closedChan, a.tenure) == nil) {
				return a, fuse.OK
			}
		}
		f.leave(&a)
	}
}

// enterCached is enter for what the kernel writes back from mapped pages,
// through any handle that can write, and in nobody's name. It does not wait
// for an open lock: the pages were changed while there was one, and this may
// be the writing out before it is given up.
func (f *fence) enterCached(cancel <-chan struct{}, h *handle, in *fuse.InHeader) (admission, fuse.Status) {
	var w closeWait
	for {
		a := admission{h: h}
		for _, o := range h.n.openHandles() {
			if o.write && o.lost.Load() {
				// It may have been this one whose program changed the page.
				return admission{}, fuse.EIO
			}
			o.mu.RLock()
			f.protection(&a, o, nil, changes)
			if w := o.open.wait; o.write && w != nil && w.cancel == nil {
				a.cover(o.open.tenure, true) // it is just given up, and held until that is done
			}
			o.mu.RUnlock()
		}
		h.mu.RLock()
		st, again := f.admit(cancel, &a, in, &w)
		if again {
			continue
		}
		return a, st
	}
}

// admit asks whether what a describes may start now. If it has to wait it
// leaves, and the caller has to look at everything again.
func (f *fence) admit(cancel <-chan struct{}, a *admission, in *fuse.InHeader, w *closeWait) (st fuse.Status, again bool) {
	f.coverPast(a, in)
	if !a.protected {
		return fuse.OK, false
	}
	err := f.locker.Admit(closedChan, a.tenure)
	if err == nil {
		return fuse.OK, false
	}
	f.leave(a)
	f.conn.willWait(in.Unique)
	if !errors.Is(err, locks.ErrLost) {
		letsGo, unpark := f.parkAdmission(a, in)
		over, stop := f.waits.waitOver(cancel, in, letsGo)
		f.pause.enter()
		over, stop = either(over, f.pause.succeeded, stop)
		err = f.locker.Admit(over, a.tenure)
		stop()
		unpark()
		if err == nil && f.pause.leave() {
			return fuse.OK, true
		}
		if err == nil {
			return bequeathed, false
		}
		f.pause.giveUp()
		if closed(f.pause.succeeded) {
			return bequeathed, false
		}
		if closed(letsGo) && errors.Is(err, locks.ErrInterrupted) {
			return fuse.EINTR, false
		}
	}
	if errors.Is(err, locks.ErrLost) {
		if f.awaitClose(w) {
			return fuse.OK, true
		}
		if a.h != nil {
			f.fenced(a.h)
		}
	}
	return lockErrno(err, cancel), false
}

// coverPast makes a depend on the tenure in which another process had begun what the
// request in does, whatever protects it now. in may be nil.
func (f *fence) coverPast(a *admission, in *fuse.InHeader) {
	if in == nil || !f.redo.some.Load() {
		return
	}
	if r := f.conn.readers.of(in.Unique); r != nil && r.past != nil && r.past.phase == phaseBegun {
		x := &r.past.step
		a.cover(locks.Tenure(x.tenure), x.protected != 0)
	}
}

// parkAdmission is parkRequest for what waits to be admitted. By name nothing
// is changed for which the kernel keeps pages.
func (f *fence) parkAdmission(a *admission, in *fuse.InHeader) (letsGo <-chan struct{}, unpark func()) {
	if a.h == nil {
		return nil, func() {}
	}
	return f.waits.parkRequest(a.h.n, in)
}

// awaitLock waits until h has its open lock, or needs none any more.
func (f *fence) awaitLock(cancel <-chan struct{}, h *handle, in *fuse.InHeader, what use) fuse.Status {
	h.mu.Lock()
	a := h.open.wait
	if s := h.open.state; s == openIdle || s == openShared && what > looks {
		a = f.openLocks.lockLater(h, true)
	}
	h.mu.Unlock()
	if a == nil {
		return fuse.OK
	}
	f.conn.willWait(in.Unique)
	letsGo, unpark := f.waits.parkRequest(h.n, in)
	defer unpark()
	over, stop := f.waits.waitOver(cancel, in, letsGo)
	defer stop()
	return f.pause.await(a.done, over, func() fuse.Status { return lockErrno(a.err, cancel) })
}

// either is closed when a or b is. stop ends the watch and calls also.
func either(a, b <-chan struct{}, also func()) (c <-chan struct{}, stop func()) {
	some, stopped := make(chan struct{}), make(chan struct{})
	go func() { // until stop
		select {
		case <-a:
		case <-b:
		case <-stopped:
			return
		}
		close(some)
	}()
	return some, func() { close(stopped); also() }
}

// protection finds the locks under which a program does I/O through h: the
// open lock of h, explicit locks that came through h, and locks on other files:
// those of the process that opened h, and those of the one that makes the
// request. in is nil if that is not known. REQUIRES: h.mu held for reading.
func (f *fence) protection(a *admission, h *handle, in *fuse.InHeader, what use) {
	a.cover(h.open.tenure, h.holds.Load())
	if f.records.explicit.Load() == 0 {
		return
	}
	a.coverHeld(h.held.Load())
	if h.proc != nil {
		a.coverHeld(h.proc.held.Load())
	}
	switch {
	case in == nil:
	case what == changes:
		f.coverProgram(a, in, func(*process) {})
	case !a.protected:
		if p := f.procs.find(in.Pid); p != nil && p != h.proc {
			a.coverHeld(p.held.Load())
		}
	}
}

// cover makes a depend on one more lock: the oldest tenure counts.
func (a *admission) cover(t locks.Tenure, ok bool) {
	if ok && (!a.protected || t < a.tenure) {
		a.tenure, a.protected = t, true
	}
}

// coverHeld makes a depend on explicit locks.
func (a *admission) coverHeld(held uint64) {
	a.cover(locks.Tenure(held-1), held > 0)
	a.explicit = a.explicit || held > 0
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
