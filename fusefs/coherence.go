package fusefs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// coherence sees to it that what is cached here is true: Flush writes out what
// others are going to see, Refresh drops what others may have changed.
type coherence struct {
	*base
	stirring    *stirring
	client      *client
	unprotected *unprotected
	pages       *pageCache
	attrs       *attrCache
	entries     *entries
	longCache   *longCache
	leases      *leases
}

// Flush puts on the storage what programs of this host have written to the
// file of k; and if k is of an explicit class, to every other file that they
// keep open without an open lock: the lock of k may be what protects those (a
// lock file beside a data file). It is called before another node may see or
// change the file, while this node still has the lock. It waits for the
// storage; while the node is suspended it may wait for the end of that.
//
// Names that were changed are made known, see stirring.
//
// Pages of a file that may be mapped for writing are dropped with it, since
// the kernel can be made to write them out only so.
func (s *Server) Flush(k locks.Key) error {
	if k == leaseKey {
		return nil // it is given up when nothing is kept or changed under it
	}
	return s.fs.coherence.unlessAtRest(func() error { return s.fs.coherence.flush(k) })
}

// FlushAll is Flush of each of ks, as it is needed before a new view: every file
// is looked at once, and several at a time. It returns the errors of those for
// which there was one.
func (s *Server) FlushAll(ks []locks.Key) (failed map[locks.Key]error) {
	err := s.fs.coherence.unlessAtRest(func() error { failed = s.fs.coherence.flushAll(ks); return nil })
	if err != nil {
		failed = make(map[locks.Key]error, len(ks))
		for _, k := range ks {
			failed[k] = err
		}
	}
	return failed
}

// Clean reports whether Flush of k would have nothing to do. It returns at
// once, and calls no method of Locker.
func (s *Server) Clean(k locks.Key) bool {
	return k == leaseKey || s.fs.coherence.clean(k)
}

// Refresh makes sure that the next access to the file of k, and for an
// explicit class to every other file that is open without an open lock, sees
// what other nodes have written. It is called before a lock is granted that
// another node had meanwhile. It may be called from within [Locker.Lock], and
// from anywhere else but a method of Locker that never waits.
func (s *Server) Refresh(k locks.Key) error {
	if k == leaseKey {
		return nil
	}
	return s.fs.coherence.unlessAtRest(func() error { return s.fs.coherence.refresh(k) })
}

// Expelled is called when this node has lost all its locks: handles that were
// under locks answer EIO until they are closed.
func (s *Server) Expelled() { s.fs.coherence.expelled() }

// unlessAtRest does what the lock engine asks for, which may open files anew and
// waits for the storage. A pause waits for its end; what comes when the mount is at
// rest waits for the end of the pause, or fails: the next process goes on.
func (c *coherence) unlessAtRest(do func() error) error {
	if !c.pause.tell() {
		return locks.ErrBequeathed
	}
	defer c.pause.told()
	return do()
}

func (c *coherence) flush(k locks.Key) error {
	c.stirring.stir()
	own, others := c.unprotected.concerned(k)
	defer c.tree.unpinAll(own, others)
	var failed error
	for _, ns := range [...][]*node{own, others} {
		for _, n := range ns {
			if err := c.flushNode(n); err != nil && failed == nil {
				failed = fmt.Errorf("write out %q: %w", c.tree.pathTo(n), err)
			}
		}
	}
	return failed
}

// flushAtOnce is how many files are written out at a time. It is the storage
// that is waited for.
const flushAtOnce = 16

func (c *coherence) flushAll(ks []locks.Key) map[locks.Key]error {
	c.stirring.stir()
	files, own, others := c.concernedByAll(ks)
	defer c.tree.unpinAll(files)
	errs := make([]error, len(files))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(flushAtOnce, len(files)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(files)); i = next.Add(1) - 1 {
				if err := c.flushNode(files[i]); err != nil {
					errs[i] = fmt.Errorf("write out %q: %w", c.tree.pathTo(files[i]), err)
				}
			}
		})
	}
	wg.Wait()
	failed := map[*node]error{}
	for i, err := range errs {
		if err != nil {
			failed[files[i]] = err
		}
	}
	if len(failed) == 0 {
		return nil
	}
	first := func(ns []*node) error {
		for _, n := range ns {
			if err := failed[n]; err != nil {
				return err
			}
		}
		return nil
	}
	out, elsewhere := map[locks.Key]error{}, first(others)
	for i, k := range ks {
		if err := first(own[i]); err != nil {
			out[k] = err
		} else if k.Class != locks.Open && elsewhere != nil {
			out[k] = elsewhere
		}
	}
	return out
}

// concernedByAll are the files that are concerned by one of ks, each once and
// pinned: those of each of ks itself, and those by all that are of an explicit
// class.
func (c *coherence) concernedByAll(ks []locks.Key) (files []*node, own [][]*node, others []*node) {
	seen := map[*node]bool{}
	add := func(ns []*node) {
		for _, n := range ns {
			if seen[n] {
				c.tree.unpin(n) // it is pinned already
				continue
			}
			seen[n] = true
			files = append(files, n)
		}
	}
	own = make([][]*node, len(ks))
	explicit := false
	for i, k := range ks {
		if k.Class == locks.Open || explicit {
			own[i] = c.tree.ofFile(k.File)
		} else {
			explicit = true
			own[i], others = c.unprotected.concerned(k)
			add(others)
		}
		add(own[i])
	}
	return files, own, others
}

func (c *coherence) clean(k locks.Key) bool {
	if c.storage.ClientCache {
		return false
	}
	own, others := c.unprotected.concerned(k)
	defer c.tree.releaseAll(own, others)
	for _, ns := range [...][]*node{own, others} {
		for _, n := range ns {
			if (n.cached.Load() || n.dropping()) && mapped(n.openHandles()) {
				return false
			}
		}
	}
	return true
}

// mapped reports whether a file that hs are the handles of may be mapped so
// that its pages can be changed.
func mapped(hs []*handle) bool {
	for _, h := range hs {
		if h.mixed {
			return true
		}
	}
	return false
}

// flushNode writes out one file.
//
// There is no way to make the kernel write mapped pages out but to make it
// drop them. Only a handle that is open for reading and writing can have been
// mapped so that the pages may be changed, and a page cannot have been mapped
// before it was read or written.
func (c *coherence) flushNode(n *node) error {
	hs := n.openHandles()
	var failed error
	if mapped(hs) && (n.cached.Load() || n.dropping()) {
		before := n.unwritten.pages.Load()
		failed = c.pages.drop(n)
		if n.unwritten.pages.Load() != before {
			failed = unix.EIO
		}
	}
	for _, h := range hs {
		h.mu.RLock()
		err := h.sync()
		h.mu.RUnlock()
		if err != nil {
			failed = err // and those of the others all the same
		}
	}
	if err := n.unwritten.handedOver(); err != nil {
		n.noteUnwritten()
		failed = err
	}
	return failed
}

// sync is fsync(2) through h if something was written through it. There is one
// for each handle: some clients of storage, such as sshfs, know of what was
// written only by the descriptor that it was written through. An error is told
// to the programs that have the file open, see unwritten.
// REQUIRES: h.mu held, at least for reading.
func (h *handle) sync() error {
	h.syncMu.Lock() // also waits for one that is under way
	defer h.syncMu.Unlock()
	if h.fd < 0 || !h.wrote.Swap(false) {
		return nil
	}
	if err := retryEINTR(func() error { return unix.Fsync(h.fd) }); err != nil && !isGone(err) {
		h.wrote.Store(true)
		h.n.unwritten.failed(err)
		h.n.noteUnwritten()
		return err
	}
	return nil
}

// writeBack sends off what was written through a handle that is being closed,
// if the client of the storage would keep it back. REQUIRES: h.mu held.
func (c *coherence) writeBack(h *handle) {
	if err := h.sync(); err != nil {
		c.log.Error("what was written to a file could not be written out when it was closed: it may be missing on the storage", "path", c.tree.pathTo(h.n), "err", err)
	}
}

// expelled does not wait for I/O that is under way: the storage may hang.
func (c *coherence) expelled() {
	c.leases.lost()
	nodes := make(map[*node]struct{})
	for _, h := range c.handles.all() {
		if h.underLock() {
			c.fenced(h)
			nodes[h.n] = struct{}{}
		}
	}
	// What the kernel has cached must not be served to them any more.
	for n := range nodes {
		n.forgetVersion()
		c.background(func() { c.pages.dropLogged(n) })
	}
}
