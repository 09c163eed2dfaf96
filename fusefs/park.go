package fusefs

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

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
func (f *fileSystem) isLocked(n *node, p *parkedRequest) bool {
	x := p.probe
	if x == nil {
		return true
	}
	x.once.Do(func() {
		off, length := p.off, p.end-p.off
		f.background(func() {
			defer close(x.past)
			f.dev.forgetPages(n.id, off, length)
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
// give up when letsGo is closed, see letGoErrno.
func (f *fileSystem) parkRequest(n *node, in *fuse.InHeader) (letsGo <-chan struct{}, unpark func()) {
	p := parks(in)
	return f.park(n, &p)
}

func (f *fileSystem) park(n *node, p *parkedRequest) (letsGo <-chan struct{}, unpark func()) {
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
	watch := p.holds && f.beginsToHold(n)
	n.cacheMu.Unlock()
	if watch {
		f.watch(n)
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
func (n *node) parking() (parked []parkedRequest, more, less <-chan struct{}) {
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

// letGoParked makes the requests give up that are parked so.
func (n *node) letGoParked(which func(*parkedRequest) bool) {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	for p := range n.parked {
		if !p.gone && which(p) {
			p.gone = true
			close(p.letsGo)
		}
	}
}
