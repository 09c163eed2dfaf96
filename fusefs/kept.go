package fusefs

// A file that is open without an open lock is kept when the kernel, or this
// node, may have something of it that was found out before: pages, attributes,
// a version. An explicit lock that comes from another node is dear where there
// are many such files; so those of which nothing is known do not count. A
// program that has a thousand files open, and uses one, pays for one.

// keeps puts n among the kept files if it belongs there. It is called after
// n.cached or n.attrTold was set, its version or size noted, and before the storage
// is asked: what a refresh does not see then is found out after it. They are
// set by Swap: with the race detector a Store is not ordered before a Load.
func (f *fileSystem) keeps(n *node) {
	if !n.unprotected.Load() || n.kept.Load() {
		return
	}
	f.unprotectedMu.Lock()
	defer f.unprotectedMu.Unlock()
	if _, ok := f.unprotected[n]; ok {
		n.kept.Store(true)
		f.kept[n] = struct{}{}
	}
}

// forgot takes those of ns out of the kept files of which nothing is known any
// more. It is called when what was to be dropped has been dropped, and no
// sooner: another refresh must not overtake this one.
func (f *fileSystem) forgot(ns []*node) {
	now := f.now()
	f.unprotectedMu.Lock()
	defer f.unprotectedMu.Unlock()
	for _, n := range ns {
		// In this order: who comes to know something sets that first, and
		// then asks for n.kept.
		n.kept.Swap(false)
		if _, ok := f.unprotected[n]; ok && n.isKnown(now) {
			n.kept.Store(true)
			f.kept[n] = struct{}{}
		} else {
			delete(f.kept, n)
		}
	}
}

// isKnown reports whether something of n is known that other nodes may change,
// or may be about to be. now is on the server's clock.
func (n *node) isKnown(now int64) bool {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	return n.version.known || n.cached.Load() || n.attrTold.Load() || n.sizes.pending(now)
}
