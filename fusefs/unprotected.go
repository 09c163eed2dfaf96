package fusefs

import (
	"sync"

	"github.com/dmxfs/dmxfs/locks"
)

// A file that is open without an open lock is known when the kernel, or this
// node, may have something of it that was found out before: pages, attributes,
// a version. An explicit lock that comes from another node is expensive where there
// are many such files; so those of which nothing is known do not count. A
// program that has a thousand files open, and uses one, pays for one.

// unprotected are the files that are open without an open lock.
type unprotected struct {
	*base
	mu    sync.Mutex
	all   map[*node]struct{}
	known map[*node]struct{} // those of which something may be known
}

// noteKnown puts n among the known files if it belongs there. It is called after
// n.cached or n.attrTold was set, its version or size noted, and before the storage
// is asked: what a refresh does not see then is found out after it. They are
// set by Swap: with the race detector a Store is not ordered before a Load.
func (u *unprotected) noteKnown(n *node) {
	if !n.unprotected.Load() || n.inKnown.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.all[n]; ok {
		n.inKnown.Store(true)
		u.known[n] = struct{}{}
	}
}

// forgot takes those of ns out of the known files of which nothing is known any
// more. It is called when what was to be dropped has been dropped, and no
// sooner: another refresh must not overtake this one.
func (u *unprotected) forgot(ns []*node) {
	now := u.now()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range ns {
		// In this order: who comes to know something sets that first, and
		// then asks for n.inKnown.
		n.inKnown.Swap(false)
		if _, ok := u.all[n]; ok && n.isKnown(now) {
			n.inKnown.Store(true)
			u.known[n] = struct{}{}
		} else {
			delete(u.known, n)
		}
	}
}

// isKnown reports whether something of n is known that other nodes may change,
// or may be about to be. now is on the server's clock.
func (n *nodeCache) isKnown(now int64) bool {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	return n.version.known || n.cached.Load() || n.attrTold.Load() || n.sizes.pending(now)
}

// concerned are the files to which a lock of k may matter, each once and
// pinned: the file itself, and those that are open without an open lock if k
// is explicit. (An open lock protects the file that it is on: whoever uses one
// has one on every file that it opens.) Of those that are not known there is
// nothing to do, unless the client of the storage may know something of them.
func (u *unprotected) concerned(k locks.Key) (own, others []*node) {
	own = u.tree.ofFile(k.File)
	if k.Class == locks.Open {
		return own, nil
	}
	u.mu.Lock()
	files := u.known
	if u.storage.ClientCache {
		files = u.all
	}
	for n := range files {
		others = append(others, n)
	}
	u.mu.Unlock()
	return own, u.tree.pinned(others, own)
}

// counted follows a change of n.states: it keeps the set of the files that are
// open without an open lock. REQUIRES: n.lockMu held.
func (u *unprotected) counted(n *node) {
	n.unsettled.Store(int32(n.states[openWaiting] + n.states[openIdle] + n.states[openShared]))
	is := n.states[openNone] > 0
	if is == n.unprotected.Load() {
		return
	}
	n.unprotected.Store(is)
	u.mu.Lock()
	n.inKnown.Store(is) // whatever is known of it
	if is {
		u.all[n] = struct{}{}
		u.known[n] = struct{}{}
	} else {
		delete(u.all, n)
		delete(u.known, n)
	}
	u.mu.Unlock()
}
