package fusefs

import (
	"errors"

	"dmxfs/locks"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// admission is the permission for one piece of I/O on a handle. Its holder
// holds handle.mu for reading.
type admission struct {
	h         *handle
	protected bool
	tenure    locks.Tenure
}

func (a *admission) end() { a.h.mu.RUnlock() }

// enter waits until I/O through h may start: for the open lock of h if it has
// to be taken (again), and while the node is suspended if a lock protects the
// I/O. Without an error the caller does its system call at once and then calls
// end; more than maxPiece bytes it does in pieces, each with an admission of
// its own.
//
// A wait here keeps pages of the file locked in the kernel. It is announced
// (see parkRequest), because whoever drops the pages of the file would wait for it.
func (f *fileSystem) enter(cancel <-chan struct{}, h *handle, in *fuse.InHeader) (admission, fuse.Status) {
	for {
		h.mu.RLock()
		if h.lost.Load() {
			h.mu.RUnlock()
			return admission{}, fuse.EIO
		}
		switch h.open.state {
		case openWaiting, openIdle:
			h.mu.RUnlock()
			if st := f.awaitLock(cancel, h, in); !st.Ok() {
				return admission{}, st
			}
			continue
		}
		a := admission{h: h}
		a.tenure, a.protected = f.protection(h, in)
		st, again := f.admit(cancel, &a, in)
		if again {
			continue
		}
		return a, st
	}
}

// enterCached is enter for what the kernel writes back from mapped pages,
// through any handle that can write, and in nobody's name. It does not wait
// for an open lock: the pages were changed while there was one, and this may
// be the writing out before it is given up.
func (f *fileSystem) enterCached(cancel <-chan struct{}, h *handle, in *fuse.InHeader) (admission, fuse.Status) {
	for {
		a := admission{h: h}
		for _, o := range h.n.openHandles() {
			if o.write && o.lost.Load() {
				// It may have been this one whose program changed the page.
				return admission{}, fuse.EIO
			}
			o.mu.RLock()
			a.cover(f.protection(o, nil))
			o.mu.RUnlock()
		}
		h.mu.RLock()
		st, again := f.admit(cancel, &a, in)
		if again {
			continue
		}
		return a, st
	}
}

// admit asks whether what a describes may start now. If it has to wait it
// gives up h.mu, and the caller has to look at everything again.
func (f *fileSystem) admit(cancel <-chan struct{}, a *admission, in *fuse.InHeader) (st fuse.Status, again bool) {
	if !a.protected {
		return fuse.OK, false
	}
	a.h.used.Store(f.now())
	err := f.locker.Admit(closedChan, a.tenure)
	if err == nil {
		return fuse.OK, false
	}
	a.h.mu.RUnlock()
	if !errors.Is(err, locks.ErrLost) {
		f.conn.handOver(in.Unique)
		unpark := f.parkRequest(a.h.n, in)
		killed, stop := f.killed(cancel, in.Pid)
		err = f.locker.Admit(killed, a.tenure)
		stop()
		unpark()
		if err == nil {
			return fuse.OK, true
		}
	}
	if errors.Is(err, locks.ErrLost) {
		a.h.lost.Store(true)
	}
	return lockErrno(err, cancel), false
}

// awaitLock waits until h has its open lock, or needs none any more.
func (f *fileSystem) awaitLock(cancel <-chan struct{}, h *handle, in *fuse.InHeader) fuse.Status {
	h.mu.Lock()
	a := h.open.wait
	if h.open.state == openIdle {
		a = f.lockLater(h, true)
	}
	h.mu.Unlock()
	if a == nil {
		return fuse.OK
	}
	f.conn.handOver(in.Unique)
	unpark := f.parkRequest(h.n, in)
	defer unpark()
	killed, stop := f.killed(cancel, in.Pid)
	defer stop()
	select {
	case <-a.done:
		return lockErrno(a.err, cancel)
	case <-killed:
		return fuse.EINTR
	}
}

// protection tells which tenure the locks have under which a program does I/O
// through h: the open lock of h, explicit locks that came through h, and
// explicit locks on other files: those of the process that opened h, and those
// of the one that makes the request. REQUIRES: h.mu held for reading.
func (f *fileSystem) protection(h *handle, in *fuse.InHeader) (locks.Tenure, bool) {
	var a admission
	a.cover(h.open.tenure, h.open.state == openHeld)
	if f.explicit.Load() > 0 {
		a.coverHeld(h.held.Load())
		if h.proc != nil {
			a.coverHeld(h.proc.held.Load())
		}
		if !a.protected && in != nil {
			if p := f.procs.find(in.Pid); p != nil && p != h.proc {
				a.coverHeld(p.held.Load())
			}
		}
	}
	return a.tenure, a.protected
}

// cover makes a depend on one more lock: the oldest tenure counts.
func (a *admission) cover(t locks.Tenure, ok bool) {
	if ok && (!a.protected || t < a.tenure) {
		a.tenure, a.protected = t, true
	}
}

func (a *admission) coverHeld(held uint64) { a.cover(locks.Tenure(held-1), held > 0) }

// inTime is asked after a write, when its admission has ended. It reports false
// if the write may have been carried out when the tenure was over, and tells
// whom it concerns.
func (f *fileSystem) inTime(a *admission, in *fuse.InHeader, off int64, length int) bool {
	if !a.protected || f.locker.Admit(closedChan, a.tenure) == nil {
		return true
	}
	// Not live now, perhaps not live during the write. If the tenure goes on
	// nobody else was let in meanwhile.
	f.conn.handOver(in.Unique)
	unpark := f.parkRequest(a.h.n, in)
	err := f.locker.Admit(nil, a.tenure)
	unpark()
	if err == nil {
		return true
	}
	a.h.lost.Store(true)
	if f.opts.LateWrite != nil {
		file, path := f.tree.identify(a.h.n)
		f.opts.LateWrite(LateWrite{
			Path: path, File: file, Offset: off, Length: length,
			Program: f.procs.program(f.procs.find(in.Pid), in),
		})
	}
	return false
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
