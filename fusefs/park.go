package fusefs

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// waits is how requests wait for other hosts: what they are in the way of
// meanwhile, and what ends it.
type waits struct {
	*base
	pages *pageCache
	looks atomic.Int64 // of watchHolders
}

// parkedRequest is one that waits, for a lock or the end of a suspension, while
// the kernel keeps pages of a file locked for it, or the file itself. The kernel
// does not get past these when it is to drop the pages of the file, or to change
// it for somebody else.
type parkedRequest struct {
	kind     parkedKind
	off, end int64 // the bytes of its pages, if that is known
	// holds: the kernel holds the lock of the inode for it, by which it keeps
	// apart what changes a file, and what takes its names away; see stuck.go.
	holds bool
	// until is when it may have to give up first, on the server's clock; 0: at any time.
	until int64
	// letsGo is closed when the request is to give up, for the sake of others.
	// It changes under nodeCache.cacheMu.
	letsGo chan struct{}
	gone   bool // letsGo is closed
	// probe finds out whether its page is locked. Nil: its pages are.
	probe *probe
}

// probe is whether the kernel gets past the page of a WRITE that is parked: it
// keeps that locked only if it does not have the content, which then comes from
// the program and cannot be read. Otherwise what it has must be dropped, too.
type probe struct {
	once sync.Once
	past chan struct{} // closed when the kernel has dropped the page
	late atomic.Bool   // it did not for probeTime
}

// probeTime is much longer than it takes to drop a page.
const probeTime = 200 * time.Millisecond

// isLocked reports whether the kernel keeps the pages of p, a request on n that is
// parked, locked. It waits, once for each request.
func (c *pageCache) isLocked(n *node, p *parkedRequest) bool {
	x := p.probe
	if x == nil {
		return true
	}
	x.once.Do(func() {
		off, length := p.off, p.end-p.off
		c.background(func() {
			defer close(x.past)
			n.notified.Add(1)
			c.dev.forgetPages(n.id, off, length)
		})
	})
	if closed(x.past) || x.late.Load() {
		return !closed(x.past)
	}
	select {
	case <-x.past:
		return false
	case <-time.After(probeTime):
		x.late.Store(true)
		return true
	}
}

type parkedKind int

const (
	// parkedFile: the kernel writes nothing of the file back meanwhile, or it
	// is not known which pages they are.
	parkedFile parkedKind = iota
	// parkedPages are being filled, so nobody can have changed them, and what
	// comes into them is read later.
	parkedPages
	// parkedAside is in no pages' way: it keeps none locked, or one that is
	// being written back and waits for nothing but the end of a suspension.
	parkedAside
)

// parks tells how a request parks.
func parks(in *fuse.InHeader) parkedRequest {
	const page = pageSize - 1
	pages := func(off, end uint64, holds bool) parkedRequest {
		return parkedRequest{kind: parkedPages, off: int64(off &^ page), end: int64((end + page) &^ page), holds: holds}
	}
	switch in.Opcode {
	case opRead:
		r := (*fuse.ReadIn)(unsafe.Pointer(in))
		return pages(r.Offset, r.Offset+uint64(r.Size), false)
	case opWrite:
		w := (*fuse.WriteIn)(unsafe.Pointer(in))
		if w.WriteFlags&fuse.WRITE_CACHE != 0 {
			return parkedRequest{kind: parkedAside}
		}
		// Only the last page can be locked, if the kernel did not have it.
		end := w.Offset + uint64(max(w.Size, 1))
		return pages(end-1, end, true)
	case opOpen:
		return parkedRequest{kind: parkedAside}
	case opSetAttr:
		if s := (*fuse.SetAttrIn)(unsafe.Pointer(in)); s.Valid&fuse.FATTR_SIZE == 0 {
			return parkedRequest{kind: parkedAside, holds: true}
		}
	case opGetAttr, opLseek, opFsync, opFallocate, opCopy:
		// GETATTR comes from lseek(2), too, which holds the lock.
		return parkedRequest{kind: parkedAside, holds: true}
	}
	return parkedRequest{holds: true}
}

// parkRequest announces that a request on n begins to wait while the kernel
// keeps n, or pages of it, locked for it; unpark ends that. The request has to
// give up when letsGo is closed, see errLetGo.
func (w *waits) parkRequest(n *node, in *fuse.InHeader) (letsGo <-chan struct{}, unpark func()) {
	p := parks(in)
	if w.redo.some.Load() && isRedone(w.conn, in.Unique) {
		p.until = w.now() + redoTime.Milliseconds()
	}
	letsGo, goesOn := w.park(n, &p)
	if in.Opcode != opWrite {
		return letsGo, goesOn
	}
	n.writes.parks(in.Unique, true)
	return letsGo, func() { n.writes.parks(in.Unique, false); goesOn() }
}

func (w *waits) park(n *node, p *parkedRequest) (letsGo <-chan struct{}, unpark func()) {
	p.letsGo = make(chan struct{})
	if p.kind == parkedPages && p.holds {
		p.probe = &probe{past: make(chan struct{})}
	}
	n.cacheMu.Lock()
	if n.parked == nil {
		n.parked = make(map[*parkedRequest]struct{})
	}
	n.parked[p] = struct{}{}
	if p.kind != parkedAside {
		n.blocked.Add(1)
		changed(&n.park)
	}
	watch := p.holds && w.beginsToHold(n)
	n.cacheMu.Unlock()
	if watch {
		w.watch(n)
	}
	return p.letsGo, func() {
		n.cacheMu.Lock()
		defer n.cacheMu.Unlock()
		delete(n.parked, p)
		if p.holds {
			n.holders.Add(-1)
		}
		if p.kind != parkedAside {
			n.blocked.Add(-1)
			changed(&n.unpark)
		}
	}
}

// changed closes a channel that somebody may wait for.
func changed(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// parking are the requests that are parked, and channels that are closed when
// there is one more, or one less, that is not aside.
func (n *nodeCache) parking() (parked []parkedRequest, more, less <-chan struct{}) {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	for p := range n.parked {
		parked = append(parked, *p)
	}
	for _, c := range [...]*chan struct{}{&n.park, &n.unpark} {
		if *c == nil {
			*c = make(chan struct{})
		}
	}
	return parked, n.park, n.unpark
}

// isParkedAt reports whether a request is parked that may keep the page of off locked.
func (n *nodeCache) isParkedAt(off int64) bool {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	for p := range n.parked {
		if p.kind == parkedPages && p.off <= off && off < p.end {
			return true
		}
	}
	return false
}

// letGoParked makes the requests give up that are parked so.
func (n *nodeCache) letGoParked(which func(*parkedRequest) bool) {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	for p := range n.parked {
		if !p.gone && which(p) {
			p.gone = true
			close(p.letsGo)
		}
	}
}

// awaitDrops is for read(2) and the like, and waits until what is just being
// dropped of n is gone.
func (w *waits) awaitDrops(cancel <-chan struct{}, n *node, in *fuse.InHeader) fuse.Status {
	if !n.dropping() {
		return fuse.OK
	}
	w.conn.willWait(in.Unique)
	killed, stop := w.killed(cancel, in.Pid)
	defer stop()
	err := w.pages.awaitDropping(n, killed) // a drop that is under way is waited for by a pause, too
	if err == unix.EINTR {
		return fuse.EINTR
	}
	return status(err)
}

// awaitUnblocked waits until no request is parked that keeps pages of n locked,
// or what it waits for is not so any more; nil: in any case.
func (w *waits) awaitUnblocked(cancel <-chan struct{}, n *node, in *fuse.InHeader, still func() bool) fuse.Status {
	for n.blocked.Load() > 0 && (still == nil || still()) {
		w.conn.willWait(in.Unique)
		if st := w.awaitUnparking(cancel, n, in); !st.Ok() {
			return st
		}
	}
	return fuse.OK
}

// awaitBeforeTruncation is awaitUnblocked for an open that truncates and has its
// lock. Where that is between processes, the requests that are parked wait for it,
// and it gives way only when the open has been answered: so they are not waited
// for, and the kernel waits for their pages until then.
func (w *waits) awaitBeforeTruncation(cancel <-chan struct{}, h *handle, in *fuse.InHeader) fuse.Status {
	if h.open.alone && !h.neverYields() {
		return fuse.OK
	}
	return w.awaitUnblocked(cancel, h.n, in, nil)
}

// awaitUnparking waits until one request less is parked.
func (w *waits) awaitUnparking(cancel <-chan struct{}, n *node, in *fuse.InHeader) fuse.Status {
	letsGo, unpark := w.park(n, &parkedRequest{kind: parkedAside, holds: in.Opcode != opOpen})
	over, stop := w.waitOver(cancel, in, letsGo)
	defer func() { stop(); unpark() }()
	_, _, less := n.parking()
	if n.blocked.Load() == 0 {
		return fuse.OK
	}
	return w.pause.await(less, over, func() fuse.Status { return fuse.OK })
}
