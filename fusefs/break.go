package fusefs

import (
	"context"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// brokenTenure is that of locks that an admin has broken. It is over: the
// tenures of the lock engine are greater than 0.
const brokenTenure locks.Tenure = 0

// Break fences what came through the given handles of the locks of k: from its
// return on no I/O under them is under way, and none begins. The handles answer
// EIO until they are closed; so does what else a program does under an explicit
// lock that it has lost so, until it gives up that lock. The locks themselves
// stay: the caller frees them then.
//
// It waits for the storage. If ctx ends before, I/O may still be under way: the
// handles stay as they are, and the locks must not be freed.
//
// Of the lease of names nothing is lost but the lease: what the kernel keeps under
// it is dropped before, and the next change takes it anew.
func (s *Server) Break(ctx context.Context, k locks.Key, handles []locks.HandleID) error {
	if k == leaseKey {
		return s.fs.leases.giveUp(ctx, handles)
	}
	return s.fs.fence.breakLocks(ctx, k, handles)
}

func (f *fence) breakLocks(ctx context.Context, k locks.Key, handles []locks.HandleID) error {
	// First what begins no more, then what is still under way.
	wait := make(map[*handle]struct{})
	nodes := make(map[*node]struct{})
	for _, id := range handles {
		h := f.handles.get(uint64(id))
		if h == nil {
			continue // closed meanwhile
		}
		f.fenced(h)
		wait[h], nodes[h.n] = struct{}{}, struct{}{}
		if !f.breakAlone(h) && k.Class == locks.Open {
			continue
		}
		for _, p := range f.breakRecords(h, k.Class) {
			for _, o := range p.opened() {
				nodes[o.n] = struct{}{}
			}
		}
		// Any handle can be used by a program that holds an explicit lock.
		for _, o := range f.handles.all() {
			wait[o] = struct{}{}
		}
	}
	named := f.underway.ended()
	done := make(chan struct{})
	var failed error
	f.background(func() {
		defer close(done)
		for h := range wait {
			h.mu.Lock()
			h.mu.Unlock() //lint:ignore SA2001 what was under way has ended
		}
		<-named
		// What programs have mapped is I/O that could not be seen. Pages that
		// were changed and not written yet fail to be.
		for n := range nodes {
			n.forgetVersion()
			if err := f.pages.drop(n); err != nil {
				failed = err
			}
		}
	})
	select {
	case <-done:
		return failed
	case <-ctx.Done():
		return fmt.Errorf("I/O under the lock is still under way, the storage does not answer: %w", context.Cause(ctx))
	}
}

// breakAlone marks the open lock of h as broken if it is between processes. One
// that was closed meanwhile must not get it back: its process would be refused all
// that it changes until it ends.
func (f *fence) breakAlone(h *handle) bool {
	n := h.n
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	if _, open := n.handles[h]; !open || !h.open.alone || !h.holds.Load() {
		return false
	}
	f.records.ownAlone(h.proc, h, brokenTenure)
	f.ledger.breaks(h)
	return true
}

// breakRecords marks the explicit locks of a class that came through h as
// broken, and returns the processes that asked for them.
func (f *fence) breakRecords(h *handle, c locks.Class) []*process {
	n := h.n
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	var ps []*process
	for r := range h.records {
		if r.class != c {
			continue
		}
		r.spoil()
		f.ledger.lock(r)
		if r.p != nil {
			ps = append(ps, r.p)
		}
	}
	return ps
}

// spoil marks r as broken. REQUIRES: r.n.lockMu held.
func (r *lockRecord) spoil() {
	r.tenure = brokenTenure
	r.h.gets(r) // again, because it is counted
	r.p.own(r)
	r.h.proc.own(r)
}

// opened are the handles that p opened.
func (p *process) opened() []*handle {
	p.mu.Lock()
	defer p.mu.Unlock()
	hs := make([]*handle, 0, len(p.handles))
	for h := range p.handles {
		hs = append(hs, h)
	}
	return hs
}
