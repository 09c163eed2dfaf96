package fusefs

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What other nodes have written is on the storage when a lock is granted. But
// the client of the storage on this host may not look: it keeps data and
// attributes, of open files and of others, for a time or until the next
// open(2). These functions make it look, in the ways that clients know:
//
//   - a descriptor that is opened anew makes close-to-open clients fetch the
//     attributes, and drop their pages if those have changed;
//   - statx(2) with AT_STATX_FORCE_SYNC makes the clients in the kernel (NFS,
//     CIFS) fetch them, and the kernel ask a client that is a FUSE daemon;
//   - posix_fadvise(2) drops the pages of clients to which the file looks
//     unchanged: sshfs has times in whole seconds;
//   - a lock of its own makes Linux's NFS client forget even those pages that
//     advice leaves alone.

// client is that of the storage, in the kernel or below it: what it may know of
// files, and what makes it look anew.
type client struct {
	*base
	descriptors *descriptors
	leases      *leases
	listings    listings
	listed      *dirLists
	zaps        atomic.Uint64 // the locks of zap
}

// seenAt is when a node was looked at last: the count of explicit refreshes
// (arrivals.explicit) at that time, plus one; 0: it has to be looked at.
type seenAt struct {
	attr, data, name atomic.Uint64
	until            atomic.Int64 // see isOld; on the server's clock
}

// distrust makes the next use of n look.
func (n *nodeCache) distrust() {
	n.seen.attr.Store(0)
	n.seen.data.Store(0)
	n.seen.name.Store(0)
}

// outdated reports whether other nodes may have changed what was looked at:
// the lock of the file was elsewhere, or any explicit lock, which may be what
// protects the file.
func (c *client) outdated(seen *atomic.Uint64) bool {
	return c.storage.ClientCache && seen.Load() != c.arrivals.explicit.Load()+1
}

// lookAgain makes the client of the storage look at a file that is open. One
// that is not is looked at when it is used next.
func (c *client) lookAgain(n *node) error {
	if !c.storage.ClientCache {
		return nil
	}
	n.distrust()
	hs := n.openHandles()
	if len(hs) == 0 || c.tree.anchorOf(n) < 0 {
		return nil
	}
	gen, made := c.arrivals.explicit.Load()+1, n.made.size.Load()
	_ = c.pass(n) // if the file is gone, what is open of it stays
	for _, h := range hs {
		if err := c.reopen(h); err != nil {
			return err
		}
	}
	if err := c.fetchAttr(n.fd); err != nil {
		return err
	}
	n.seen.attr.Store(gen)
	n.seen.data.Store(gen)
	_ = n.made.settle(n.fd, made) // who asks meets the same error
	return nil
}

// reopen gives h a new descriptor of the same file. If that is gone from the
// storage h keeps the old one.
func (c *client) reopen(h *handle) error {
	h.mu.RLock()
	opened := h.fd >= 0 && !h.released
	h.mu.RUnlock()
	if !opened {
		return nil // its open looks
	}
	flags := 0
	fd, err := c.descriptors.withReserve(func() (fd int, err error) {
		fd, flags, err = c.openHandle(h)
		return fd, err
	})
	if err == unix.ENOENT || err == unix.ESTALE {
		return nil
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	old := fd
	if !h.released {
		err = h.sync() // what is written is known to the old one
		old, h.fd, h.flags = h.fd, fd, flags
		h.n.sole.reopened.Add(1)
		c.ledger.handle(h)
	}
	h.mu.Unlock()
	c.dropBelow(old)
	closeFD(old)
	return err
}

// dropBelow makes the client drop the pages of a file.
func (c *client) dropBelow(fd int) {
	if c.storage.LocksZap {
		c.zap(fd)
	}
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
}

// zap makes Linux's NFS client forget the pages and attributes of a file, by a
// lock: it takes each lock for a moment in which another client may have been
// there (do_setlk in fs/nfs/file.c). Advice alone leaves pages that are in use
// or have just been written, and the client goes on with those in two cases: one
// of NFS 3 if the file was changed within one tick of the server's clock, and any
// if a program of this host has the file open for writing, since then it takes
// the change for its own (nfs_update_inode in fs/nfs/inode.c, "a race with
// writeback"), also when the file is opened anew.
//
// Each call locks another byte, far behind the end. The server of NFS 4 hears of
// it, so hosts begin at different ones, and one that is taken is passed over.
func (c *client) zap(fd int) {
	const first, tries = 1 << 61, 8
	lock := unix.Flock_t{Type: unix.F_RDLCK, Len: 1}
	for range tries {
		lock.Start = first + int64(zapStart+c.zaps.Add(1))
		err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock)
		if err == nil {
			lock.Type = unix.F_UNLCK
			_ = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock)
			return
		}
		switch err {
		case unix.EINTR, unix.EAGAIN, unix.EACCES:
		case unix.EBADF: // only open for writing
			lock.Type = unix.F_WRLCK
		default:
			return
		}
	}
}

// zapStart is where the locks of this host begin.
var zapStart = rand.Uint64N(1 << 60)

// fetchAttr makes the client fetch the attributes of a file or directory, and
// sees to it that they are what this host goes on with.
//
// That is not the same: the kernel ignores what a FUSE daemon answers if it has
// taken over another answer since it asked, even one that was given before (see
// fuse_change_attributes). Then stat(2) is told the new size once, and read(2)
// ends at the old one. An answer that was taken over cannot be undone by those
// that were asked for before it. So it is asked for until what is kept is what
// was answered.
func (c *client) fetchAttr(fd int) error {
	var told, kept, lastTold, lastKept version
	for i := range attrTries {
		if i > attrTimeTries {
			time.Sleep(attrPause) // a write or truncate that is under way has to end first
		}
		lastTold, lastKept = told, kept
		var err error
		if told, err = attrOf(fd, unix.AT_STATX_FORCE_SYNC); err == nil {
			kept, err = attrOf(fd, unix.AT_STATX_DONT_SYNC)
		}
		if err == unix.ENOSYS || err == unix.EINVAL || err == unix.ENOENT || err == unix.ESTALE {
			return nil // cannot be forced; or the file is gone, which is seen later
		}
		if err != nil || told == kept {
			return err
		}
		if told.size == kept.size && i >= attrTimeTries {
			return nil // times are not worth a long wait
		}
	}
	if told == lastTold && kept == lastKept {
		return fmt.Errorf("the client of the storage goes on with a size of %d after it was told that it is %d: %w",
			kept.size, told.size, unix.EIO)
	}
	return nil // a program of this host changes it all the time, which the kernel knows of
}

// attrTries is how often fetchAttr asks for a size, attrTimeTries for times.
// Twice is rare: answers from before are few, and on their way already. But
// while a program of this host makes the file longer, or shorter, the kernel
// takes over no size at all, and on a busy machine that takes its time.
const (
	attrTries     = 1000
	attrTimeTries = 3
	attrPause     = 5 * time.Millisecond
)

// attrOf describes a file, as how says: flags of statx(2).
func attrOf(fd, how int) (version, error) {
	var st unix.Statx_t
	err := retryEINTR(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|how, unix.STATX_BASIC_STATS, &st)
	})
	return versionOfX(&st), err
}

// lookOpened makes the client look at the file of h, which was just opened, and
// describes it in st.
func (c *client) lookOpened(h *handle, st *unix.Stat_t) error {
	if !c.storage.ClientCache {
		return nil
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	n, fd := h.n, h.fd
	if !c.outdated(&n.seen.attr) && !c.outdated(&n.seen.data) && c.leases.current() {
		return retryEINTR(func() error { return unix.Fstat(fd, st) })
	}
	gen := c.arrivals.explicit.Load() + 1
	if err := c.pass(n); err != nil {
		return err
	}
	// A FUSE daemon may let the kernel keep pages over an open(2), and programs
	// of another host that lock for themselves have written without an open lock.
	if c.storage.Userspace || n.seen.data.Load() != gen {
		c.dropBelow(fd)
	}
	// open(2) has made the clients in the kernel fetch the attributes.
	if c.storage.Userspace || n.seen.attr.Load() != gen {
		if err := c.fetchAttr(fd); err != nil {
			return err
		}
	}
	n.seen.attr.Store(gen)
	n.seen.data.Store(gen)
	c.looked(n)
	return retryEINTR(func() error { return unix.Fstat(fd, st) })
}

// lookUnknown makes the client fetch what is in the file of h, which was just
// opened, if that may be from before a change that its times do not tell: two
// within a step of the server's clock, with a look of this host between them. It
// is called where the kernel is not let keep its pages, for that reason or another
// one: what it reads then counts as read now.
func (c *client) lookUnknown(h *handle) {
	if !c.storage.DataByTime {
		return
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	c.dropBelow(h.fd)
}

// lookAt makes the client look at a file or directory that somebody asks
// about, if that may be outdated. n is pinned and has its anchor. The error is
// ENOENT or ESTALE if the file is gone, and nil otherwise.
func (c *client) lookAt(n *node) error {
	if !c.isOld(n) {
		return nil
	}
	gen := c.arrivals.explicit.Load() + 1
	if err := c.pass(n); err != nil {
		return err
	}
	if c.isGone(n) {
		return unix.ENOENT
	}
	if c.storage.Userspace && n.isRegular() {
		fd, err := c.descriptors.withReserve(func() (int, error) { return c.openNode(n, unix.O_RDONLY|unix.O_NONBLOCK) })
		switch err {
		case nil:
			c.dropBelow(fd)
			n.seen.data.Store(gen)
			closeFD(fd)
		case unix.ENOENT, unix.ESTALE:
			return err
		}
	}
	_ = c.fetchAttr(n.fd) // who asks meets the same error
	if c.storage.NamesByTime && isRemoved(n) {
		return unix.ENOENT
	}
	n.seen.attr.Store(gen)
	c.looked(n)
	return nil
}

// isRemoved reports whether the client was just told that a file or directory is
// gone. n is pinned and has its anchor.
func isRemoved(n *node) bool {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Fstat(n.fd, &st) })
	return err == unix.ESTALE || err == nil && st.Nlink == 0
}

// lookForNames makes the client look which names are in a directory, before
// this one is opened. (The kernel keeps the names of FUSE daemons for as
// long as those have said, and nothing can be done about it.)
func (c *client) lookForNames(dir *node, name string) {
	c.passName(dir, name)
	if c.storage.ClientCache && !c.storage.Userspace {
		_ = c.fetchAttr(dir.fd)
	}
}

// askOf makes a client that knows names by the time of their directory (NFS) look
// at that; false: this is not one. For half a minute or longer it would say
// that there is none of a name, and list what there was, without asking.
func (c *client) askOf(dir *node) bool {
	if !c.storage.NamesByTime {
		return false
	}
	_ = c.fetchAttr(dir.fd)
	return true
}

// openHandle opens the file of h anew, and tells with what flags it did.
func (c *client) openHandle(h *handle) (fd, flags int, err error) {
	h.mu.RLock()
	flags = h.flags
	h.mu.RUnlock()
	fd, err = c.openNode(h.n, flags)
	if err == unix.EPERM && h.write && h.appends {
		flags |= unix.O_APPEND
		fd, err = c.openNode(h.n, flags)
	}
	return fd, flags, err
}

// openNode opens the file of n anew, which is pinned and has its anchor.
func (c *client) openNode(n *node, flags int) (fd int, err error) {
	err = c.opening(&fd, func() error {
		return retryEINTR(func() (err error) {
			fd, err = unix.Openat(c.fds, itoa(n.fd), flags|unix.O_CLOEXEC, 0)
			return err
		})
	})
	if err != nil {
		return -1, err
	}
	return fd, nil
}
