package fusefs

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A client that keeps names (Storage.KeepsNames) knows files by their paths
// alone. If another host puts another file in the place of one that programs
// here have open, it goes on with the same inode: what is read through old
// descriptors and new ones, which the server does keep apart, would end up in
// the same pages, with the size of the newer one.
//
// While a file is open here for reading only, and under open locks without a
// break, only programs of other hosts change it that lock for themselves. So what
// has another size or time then is either the same file, in which these have
// written, or another one in its place; what was opened before still reads the
// old one, which tells: see inplace.go. Another file gets a node, and thus an
// inode, of its own, and programs that have the old one open go on with the
// attributes that this had. They read past the pages of the client, which the two
// have in common.
//
// That a file of the same size was put there within the same second cannot be
// seen. Then those who have the file open are given the new one, too.

// soleVersion is what a file is like that is open for reading only.
type soleVersion struct {
	known bool
	// spoiled: it is, or was, open otherwise. That ends with the last handle.
	spoiled bool
	st      unix.Stat_t
	// mu is held while it is found out whether the file is another one.
	mu sync.Mutex
	// reopened counts how often a handle got another descriptor by reopen. It is
	// changed with the mu of that handle held.
	reopened atomic.Uint64
}

// forget is for when nobody has the file open any more.
func (v *soleVersion) forget() { v.known, v.spoiled, v.st = false, false, unix.Stat_t{} }

// spoil notes that a file may change in its place. REQUIRES: n.lockMu held.
func (n *nodeLocks) spoil() { n.sole.known, n.sole.spoiled = false, true }

// changesHere notes that a program of this host changes n by its name.
func (n *nodeLocks) changesHere() {
	n.lockMu.Lock()
	if len(n.handles) > 0 {
		n.spoil()
	}
	n.lockMu.Unlock()
}

// isSole reports whether n is open for reading only.
func (n *nodeLocks) isSole() bool {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	return n.sole.known
}

// isReplaced reports whether st, which is what the name of n leads to, is of
// another file than programs have open as n. If that file was changed in its
// place, st is corrected. REQUIRES: no handle.mu held.
func (c *client) isReplaced(n *node, st *unix.Stat_t) bool {
	if !c.storage.KeepsNames || !n.isRegular() {
		return false
	}
	if n.seemsReplaced(st) && !c.changedInPlace(n, st) {
		n.replaced.Store(true)
		c.ledger.replaced(c.tree, n)
	}
	return n.replaced.Load()
}

// seemsReplaced reports whether st is not what is known of the file that programs
// have open for reading as n.
func (n *nodeLocks) seemsReplaced(st *unix.Stat_t) bool {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	return n.sole.known && !n.replaced.Load() && (st.Size != n.sole.st.Size || st.Mtim != n.sole.st.Mtim)
}

// cutShort reports whether a read of want bytes at off, which has got so many, has
// ended before the file that programs have open as n does. The kernel reads nothing
// of a client's file behind the end that it knows of, which is that of the one that
// has taken its place.
func (n *nodeLocks) cutShort(off int64, got, want int) bool {
	if got == want || !n.replaced.Load() {
		return false
	}
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	return n.sole.known && off+int64(got) < n.sole.st.Size
}

// stay puts in st what the file was like that programs have open as n, if another
// one has taken its place.
func (c *client) stay(n *node, st *unix.Stat_t) {
	if !c.isReplaced(n, st) {
		return
	}
	n.lockMu.Lock()
	if n.sole.known {
		*st = n.sole.st
	}
	n.lockMu.Unlock()
}

// stayX is stay for statx(2).
func (c *client) stayX(n *node, st *unix.Statx_t) {
	is := unix.Stat_t{Size: int64(st.Size), Mtim: versionOfX(st).mtime}
	c.stay(n, &is)
	st.Size = uint64(is.Size)
	st.Mtime.Sec, st.Mtime.Nsec = is.Mtim.Sec, uint32(is.Mtim.Nsec)
}

// openedSole notes what the file of h is like, which was just opened, and sees
// to it that all who have it open have the same.
func (c *client) openedSole(h *handle, st *unix.Stat_t) error {
	n := h.n
	if !c.storage.KeepsNames {
		return nil
	}
	n.lockMu.Lock()
	others := n.sole.known && len(n.handles) > 1
	if !n.sole.spoiled && h.holds.Load() {
		n.sole.known, n.sole.st, h.sole = true, *st, true
	}
	n.lockMu.Unlock()
	if !others || time.Since(time.Unix(st.Mtim.Unix())) > soleYoung {
		return nil
	}
	for _, o := range n.openHandles() {
		if o == h {
			continue
		}
		if err := c.reopen(o); err != nil {
			return err
		}
	}
	return nil
}

// soleYoung is how long ago the last change of a file may be by which it could
// have been replaced in the same second since it was opened; it allows for
// clocks that differ.
const soleYoung = time.Minute
