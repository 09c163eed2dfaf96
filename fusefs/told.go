package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The kernel takes over the attributes of an answer when the program that asked
// gets to run. If it has taken over another answer since that was asked for, it
// ignores it (see fuse_change_attributes), and a read(2) that asked goes on
// with the size of the other one, even if that was found out long before.
//
// So an answer from before a lock came here can make the read after it end too
// early: somebody else asked, was told the old size, and gets to run while the
// new size is asked for. A notification makes the kernel ignore all that was
// asked for before; but the new size, too, if it is on its way to a program
// that got its lock a moment ago. So it is sent only where an old size may be
// on its way, and never because of answers that said what is still true.

// Where the size or the time of the last write is another one, the kernel drops
// the pages of the file when it takes over the answer. It waits for those that
// are locked for requests that are parked, and nothing ends that: neither stat(2)
// nor rm(1), which holds the directory. So while such requests are parked it has
// to ignore what is news; stat(2) shows it all the same. A read(2) for which the
// size is news waits before it is told, where a signal ends it.

// mayBlock reports whether a request is parked that keeps pages of n locked, or
// one that begins now may be.
func (n *node) mayBlock() bool { return n.blocked.Load() > 0 || n.unsettled.Load() > 0 }

// samePages reports whether the kernel keeps its pages when it is told w after v.
func (v version) samePages(w version) bool { return v.size == w.size && v.mtime == w.mtime }

// hasNewSize reports whether the kernel was not told how long the file is.
func (f *fileSystem) hasNewSize(n *node) bool {
	var st unix.Stat_t
	if unix.Fstat(f.tree.anchorOf(n), &st) != nil {
		return false
	}
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	return n.told.known && n.told.size != st.Size
}

// awaitUnblocked waits until no request is parked that keeps pages of n locked,
// or what it waits for is not so any more; nil: in any case.
func (f *fileSystem) awaitUnblocked(cancel <-chan struct{}, n *node, in *fuse.InHeader, still func() bool) fuse.Status {
	for n.blocked.Load() > 0 && (still == nil || still()) {
		f.conn.handOver(in.Unique)
		if st := f.awaitUnparking(cancel, n, in); !st.Ok() {
			return st
		}
	}
	return fuse.OK
}

// awaitBeforeTruncation is awaitUnblocked for an open that truncates and has its
// lock. Where that is between processes, the requests that are parked wait for it,
// and it gives way only when the open has been answered: so they are not waited
// for, and the kernel waits for their pages until then.
func (f *fileSystem) awaitBeforeTruncation(cancel <-chan struct{}, h *handle, in *fuse.InHeader) fuse.Status {
	if h.open.alone && !h.neverYields() {
		return fuse.OK
	}
	return f.awaitUnblocked(cancel, h.n, in, nil)
}

// awaitUnparking waits until one request less is parked.
func (f *fileSystem) awaitUnparking(cancel <-chan struct{}, n *node, in *fuse.InHeader) fuse.Status {
	letsGo, unpark := f.park(n, &parkedRequest{kind: parkedAside, holds: in.Opcode != opOpen})
	over, stop := f.waitOver(cancel, in, letsGo)
	defer func() { stop(); unpark() }()
	_, _, less := n.parking()
	if n.blocked.Load() == 0 {
		return fuse.OK
	}
	select {
	case <-less:
		return fuse.OK
	case <-over:
		return fuse.EINTR
	}
}

// toldSizes are the sizes of a file in the answers since the last notification.
// Guarded by nodeCache.cacheMu.
type toldSizes struct {
	any, mixed bool // there is one; there are different ones
	size       int64
	last       int64 // when, on the server's clock
}

// takenOver is how many milliseconds it takes at most, on a machine that is
// very busy, until an answer has been taken over.
const takenOver = 10_000

func (x *toldSizes) add(size, now int64) {
	if x.any && now-x.last > takenOver {
		*x = toldSizes{}
	}
	x.mixed = x.mixed || x.any && x.size != size
	x.any, x.size, x.last = true, size, now
}

// pending reports whether an answer may not have been taken over.
func (x *toldSizes) pending(now int64) bool { return x.any && now-x.last <= takenOver }

// differ reports whether one of those may say another size than this.
func (x *toldSizes) differ(size, now int64) bool {
	return x.pending(now) && (x.mixed || x.size != size)
}

// tellAttr fills in what the kernel is told of a node.
func (f *fileSystem) tellAttr(n *node, a *fuse.Attr, st *unix.Stat_t) {
	f.fillAttr(a, st)
	f.tells(n, versionOf(st), false)
}

// tells notes what the kernel is told of a node. Afterwards refreshGen is
// compared with what it was before the storage was asked: a refresh changes it
// first, and then looks at what is noted here, so that one of the two finds out.
//
// What is news while pages are locked the kernel is made to ignore, but for the
// size if a program is going to read by it.
func (f *fileSystem) tells(n *node, v version, toRead bool) {
	n.toldAt.Store(f.now())
	n.cacheMu.Lock()
	if n.blocked.Load() > 0 && n.told.known && !n.told.samePages(v) && !(toRead && v.size != n.told.size) {
		n.cacheMu.Unlock()
		f.dev.forgetAttr(n.id)
		return
	}
	n.told = v
	if n.isRegular() {
		n.sizes.add(v.size, f.now())
	}
	n.cacheMu.Unlock()
	f.unprotected.keeps(n)
}

// tellNew corrects what the kernel is told of a node that other nodes may have
// changed since it was found out. One that has no anchor is not open, and what
// is told of it is looked at when it is opened, see opensAs.
func (f *fileSystem) tellNew(n *node, a *fuse.Attr) {
	f.tree.pin(n)
	defer f.tree.unpin(n)
	fd := f.tree.anchorOf(n)
	if fd < 0 {
		return
	}
	_ = f.untilNow(func() error {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		if err == nil {
			f.tellAttr(n, a, &st)
		}
		return err
	})
}

// untilNow calls tell, which asks the storage and tells the kernel, until no
// lock came here meanwhile. Where locks come faster than the storage answers it
// gives up, and the answer is one that comes late.
func (f *fileSystem) untilNow(tell func() error) error {
	const tries = 10
	for i := 1; ; i++ {
		gen := f.arrivals.refreshGen.Load()
		if err := tell(); err != nil || i == tries || f.arrivals.refreshGen.Load() == gen {
			return err
		}
	}
}

// dropOld makes the kernel forget the attributes of n, if it may have any, and
// ignore an old size that is on its way to it.
func (f *fileSystem) dropOld(n *node) {
	if n.attrTold.Swap(false) {
		f.forgetAttr(n)
		return
	}
	now := f.now()
	n.cacheMu.Lock()
	pending := n.sizes.pending(now)
	n.cacheMu.Unlock()
	fd := f.tree.anchorOf(n)
	if !pending || fd < 0 {
		return
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	n.cacheMu.Lock()
	differ := err != nil || n.sizes.differ(st.Size, now)
	n.cacheMu.Unlock()
	if differ {
		f.forgetAttr(n)
	}
}
