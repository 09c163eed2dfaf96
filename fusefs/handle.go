package fusefs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// handle is an open file: what one OPEN, CREATE or TMPFILE made and one
// RELEASE ends.
type handle struct {
	id    uint64 // the file handle of the protocol, and the locks.HandleID
	n     *node  // pinned
	flags int    // for open(2) of the backing file, without what only matters once
	write bool
	// appends: it was opened with O_APPEND, which is among flags only if the
	// file can't be opened without.
	appends bool
	mixed   bool     // open for reading and writing: it may be mapped so
	proc    *process // that opened it; may be nil

	// mu is held for reading by a call that uses fd under the lock state that
	// it has seen, and for writing to change either. Nobody waits for a lock
	// or for admission while holding it.
	mu       sync.RWMutex
	fd       int
	released bool // fd is closed, or is about to be
	open     openLock

	// holds: open.state is openHeld or openShared. since is the tenure of the open
	// lock then, plus one, and otherwise 0.
	holds atomic.Bool
	since atomic.Uint64

	// failed: the open has failed, and is tried again with another handle.
	failed atomic.Bool

	// lost: it was under a lock when this node was expelled. It answers EIO
	// until it is closed.
	lost atomic.Bool
	// held is the tenure of the oldest explicit lock that came through it,
	// plus one; 0: there is none.
	held atomic.Uint64
	// records are those of the explicit locks whose latest came through it;
	// guarded by n.lockMu.
	records map[*lockRecord]struct{}
	// wrote: through fd, and perhaps not yet synced to the storage. syncMu is
	// held while that is done.
	wrote  atomic.Bool
	syncMu sync.Mutex
	knows  atomic.Uint64 // of so many failures, see unwritten
	// used is when I/O last began; dropped is when the kernel last dropped the
	// pages of the file, so that this would be seen. On the server's clock.
	used, dropped atomic.Int64
	touched       atomic.Bool // it was read or written through it
	closing       atomic.Bool // a descriptor of it was closed, perhaps the last one
	// fresh: it has made or truncated the file, and not written it yet.
	fresh  atomic.Bool
	sole   bool        // n.sole describes what it has open; guarded by n.lockMu
	filled uint64      // nodeCache.filled when it was opened, and there were no pages
	line   *handleLine // of the ledger; or nil
	// Whether it was ever used for locks of the class: RELEASE gives them up.
	flocked, posixed atomic.Bool
}

func (h *handle) lockID() locks.HandleID { return locks.HandleID(h.id) }

// nodeLocks is the part of a node that is about locks and open files.
type nodeLocks struct {
	lockMu  sync.Mutex
	handles map[*handle]struct{}
	states  [openStates]int // handles by the state of their open lock
	sole    soleVersion
	// replaced: another file has taken its place; see sole.go.
	replaced atomic.Bool
	// unprotected: states[openNone] > 0. It changes under lockMu.
	unprotected atomic.Bool
	inKnown     atomic.Bool // it is in unprotected.known; it changes under unprotected.mu
	records     map[recordKey]*lockRecord
	// posixUse counts POSIX locks and requests for them, so that a FLUSH need
	// not ask where there are none.
	posixUse atomic.Int32
	// unsettled counts the handles whose open lock is waited for or gave way.
	unsettled atomic.Int32
	rule      atomic.Pointer[nodeRule]
}

// nodeRule is a rule and the path for which it was found.
type nodeRule struct {
	Rule
	path string
	gen  uint64
}

// rules are what open(2) means for which file.
type rules struct {
	*base
	gen atomic.Uint64 // changes when they do
}

// of is the rule of a node at a path.
func (r *rules) of(n *node, path string) *nodeRule {
	gen := r.gen.Load()
	if old := n.rule.Load(); old != nil && old.gen == gen && old.path == path {
		return old
	}
	rule := &nodeRule{Rule: r.opts.Rule(path), path: path, gen: gen}
	n.rule.Store(rule)
	return rule
}

// attach makes h known, in state s. It is the first thing that happens to a
// handle, before its lock is asked for.
func (o *openLocks) attach(h *handle, s openState) {
	o.tree.pin(h.n)
	h.open.state = s
	n := h.n
	h.knows.Store(n.unwritten.opened())
	n.lockMu.Lock()
	if n.handles == nil {
		n.handles = make(map[*handle]struct{}, 1)
	}
	n.handles[h] = struct{}{}
	n.states[s]++
	o.unprotected.counted(n)
	if h.write || s == openNone {
		n.spoil()
	}
	n.lockMu.Unlock()
	if p := h.proc; p != nil {
		p.mu.Lock()
		if p.handles == nil {
			p.handles = make(map[*handle]struct{}, 1)
		}
		p.handles[h] = struct{}{}
		p.mu.Unlock()
	}
}

// detach undoes attach. No request uses h any more.
func (o *openLocks) detach(h *handle) {
	n := h.n
	n.lockMu.Lock()
	delete(n.handles, h)
	n.states[h.open.state]--
	o.unprotected.counted(n)
	last := len(n.handles) == 0
	if last {
		n.sole.forget()
	}
	n.lockMu.Unlock()
	if p := h.proc; p != nil {
		p.mu.Lock()
		delete(p.handles, h)
		p.mu.Unlock()
	}
	o.records.disownAlone(h.proc, h)
	if last {
		o.tree.closed(n)
	}
	o.tree.unpin(n)
}

// setState changes the state of h's open lock. REQUIRES: h.mu held.
func (o *openLocks) setState(h *handle, s openState) {
	n := h.n
	n.lockMu.Lock()
	n.states[h.open.state]--
	n.states[s]++
	h.open.state = s
	held := s == openHeld || s == openShared
	if h.holds.Swap(held) && !held && !h.failed.Load() {
		n.spoil()
	}
	h.since.Store(0)
	if held {
		h.since.Store(uint64(h.open.tenure) + 1)
	}
	o.unprotected.counted(n)
	o.ledger.handle(h)
	defer n.lockMu.Unlock() // see breakAlone
	switch {
	case !h.open.alone:
	case s == openHeld:
		o.records.ownAlone(h.proc, h, h.open.tenure)
	case !h.lost.Load(): // else until it is closed
		o.records.disownAlone(h.proc, h)
	}
}

// openHandles are the handles of n now.
func (n *nodeLocks) openHandles() []*handle {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	hs := make([]*handle, 0, len(n.handles))
	for h := range n.handles {
		hs = append(hs, h)
	}
	return hs
}

// isWritable reports whether n is open for writing.
func (n *nodeLocks) isWritable() bool {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	for h := range n.handles {
		if h.write {
			return true
		}
	}
	return false
}

// hasHandles reports whether n is open.
func (n *nodeLocks) hasHandles() bool {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	return len(n.handles) > 0
}

// isBeingClosed reports whether n is open, but all of its handles may have seen
// their last close(2): then RELEASE is on its way.
func (n *nodeLocks) isBeingClosed() bool {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	for h := range n.handles {
		if !h.closing.Load() {
			return false
		}
	}
	return len(n.handles) > 0
}

// holds reports whether this node holds an open lock of n.
func (n *nodeLocks) holds() bool {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	if n.states[openHeld]+n.states[openShared] == 0 {
		return false
	}
	for h := range n.handles {
		if h.holds.Load() && !h.lost.Load() {
			return true
		}
	}
	return false
}

// opensFor reports whether p has an open lock of n.
func (n *nodeLocks) opensFor(p *process) bool {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	for h := range n.handles {
		if h.proc == p && h.holds.Load() {
			return true
		}
	}
	return false
}

// underLock reports whether a lock that this node has been granted protects
// I/O through h.
func (h *handle) underLock() bool {
	return h.holds.Load() || h.held.Load() > 0 || h.proc != nil && h.proc.held.Load() > 0
}

// uses notes that I/O through h begins. REQUIRES: h.mu held for reading.
func (h *handle) uses(what use, now int64) {
	if what <= looks {
		return
	}
	h.touched.Store(true)
	if what == changes {
		h.fresh.Store(false)
	}
	h.used.Store(now)
}

// buffer takes O_DIRECT from the backing descriptor, and reports whether it had
// it. Pages of a mapping that the kernel writes back need not be as long as
// direct I/O wants; nor what a program writes that has cleared the flag since
// it opened the file, as dd(1) does for the end. What is still meant to be
// direct passes by the kernel's cache of the mount all the same.
// REQUIRES: h.mu held, at least for reading.
func (h *handle) buffer() bool {
	flags, err := unix.FcntlInt(uintptr(h.fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_DIRECT == 0 {
		return false
	}
	_, err = unix.FcntlInt(uintptr(h.fd), unix.F_SETFL, flags&^unix.O_DIRECT)
	return err == nil
}
