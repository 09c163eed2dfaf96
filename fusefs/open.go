package fusefs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// keptFlags are the flags of open(2) that the backing descriptor gets, too.
// O_APPEND is not among them: every WRITE says whether it appends, so that a
// change by fcntl(F_SETFL) counts, and so that pages which the kernel writes
// back through the handle go where they belong. For files that allow nothing
// else (chattr +a) openHandle adds it.
const keptFlags = unix.O_ACCMODE | unix.O_DIRECT | unix.O_SYNC | unix.O_DSYNC | unix.O_NOATIME

// openCalls serves requests that open regular files, or make them.
type openCalls struct {
	*base
	actor       *actor
	attrs       *attrCache
	client      *client
	descriptors *descriptors
	fence       *fence
	finder      *finder
	openLocks   *openLocks
	pages       *pageCache
	private     *private
	retries     *retries
	waits       *waits
}

// Open opens a regular file. (The kernel opens special files by itself.)
//
// First the open lock, then the file: what it is called may lead elsewhere
// when the lock is granted, because the last holder has put another file in
// its place. Then the answer is ESTALE, upon which the kernel looks up the
// path again, once; see retry.
func (oc *openCalls) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	again := oc.retries.take(in.Pid)
	st := oc.open(cancel, in, again, out)
	if st == bequeathed {
		oc.retries.putBack(in.Pid, again)
	}
	return st
}

// open is Open; again is the first attempt, or nil.
func (oc *openCalls) open(cancel <-chan struct{}, in *fuse.OpenIn, again *retry, out *fuse.OpenOut) fuse.Status {
	n, errno := oc.finder.node(&in.InHeader)
	if !errno.Ok() {
		oc.retries.abandonRetry(again)
		return errno
	}
	defer oc.tree.unpin(n)
	oc.waits.goesBy(n, in.Pid)
	truncate := in.Flags&unix.O_TRUNC != 0
	joins := n.holds()
	filled := n.filled.Load()
	if again.isTruncate() {
		again = nil // of another call
	}
	h := again.lockedFor(n, in.Flags)
	if h == nil {
		oc.retries.abandonRetry(again)
		h = oc.openLocks.newHandle(n, in.Flags, truncate, &in.InHeader)
		oc.openLocks.attach(h, h.open.state)
		if h.open.state == openWaiting {
			if err := oc.openLocks.lockOpened(cancel, h, in.Flags&unix.O_NONBLOCK != 0, &in.InHeader); err != nil {
				if h.open.untilClose && errors.Is(err, locks.ErrTimeout) {
					oc.log.Warn("a file is in use on another host, and for one host at a time: it was not opened; databases of SQLite do without it in other modes than WAL",
						"path", h.open.req.Path, "program", h.open.req.Program.Command, "pid", h.open.req.Program.PID, "why", err)
				}
				oc.openLocks.detach(h)
				return lockErrno(err, cancel)
			}
		}
	}
	st, moved, err := oc.finder.verifyName(&in.InHeader, n)
	if err == unix.ESTALE && again != nil {
		// There is no third attempt. The name led here when the kernel asked
		// for the second time, in the course of the same open(2): as if the
		// file had been removed just after that.
		err = retryEINTR(func() error { return unix.Fstat(n.fd, &st) })
	}
	if err == unix.ESTALE {
		if st := oc.retries.lookAhead(cancel, h, moved, in); !st.Ok() {
			oc.openLocks.abandon(h)
			return st
		}
	}
	if err == nil {
		err = oc.openThere(h, &st, again == nil, &in.InHeader)
		if err == unix.ESTALE && again == nil && (oc.storage.Lingers || oc.storage.KeepsNames) {
			n.distrust()
			if st := oc.retries.lookAhead(cancel, h, oc.tree.unnamed(n), in); !st.Ok() {
				oc.openLocks.abandon(h)
				return st
			}
		}
	}
	if err != nil {
		oc.openLocks.abandon(h)
		return status(err)
	}
	h.filled = filled
	if truncate {
		if st := oc.waits.awaitBeforeTruncation(cancel, h, &in.InHeader); !st.Ok() {
			oc.openLocks.abandon(h)
			return st
		}
		if st := oc.truncateOpened(cancel, h, in); !st.Ok() {
			oc.openLocks.abandon(h)
			return st
		}
	} else if out.OpenFlags, err = oc.keepsPages(h, &st, joins); err != nil {
		oc.openLocks.abandon(h)
		return status(err)
	}
	oc.serve(h, &in.InHeader)
	out.Fh = h.id
	return fuse.OK
}

// keepsPages decides, for an open that does not truncate, what becomes of the pages
// that the kernel has of the file of h, which st describes: the flags of the answer
// say so. With joins this node held an open lock of the file before.
func (oc *openCalls) keepsPages(h *handle, st *unix.Stat_t, joins bool) (flags uint32, err error) {
	n := h.n
	if h.holds.Load() && (joins && !oc.tree.ids.paths || !h.mixed && oc.attrs.unchanged(n, st)) {
		// Not where pages from before would serve reads of what the program may
		// write, so that it is seen whether it has read: it may lock for itself.
		if n.filled.Load() != n.empty.Load() {
			h.filled = unknownPages
		}
		oc.attrs.opensAs(n, st) // if it changed all the same the kernel drops its pages when it has asked
		return fuse.FOPEN_KEEP_CACHE, nil
	}
	oc.client.lookUnknown(h)
	n.emptied(st, oc.now())
	oc.attrs.opensAs(n, st)
	if !n.mayBlock() {
		return 0, nil
	}
	// The kernel would wait for pages that are locked.
	return fuse.FOPEN_KEEP_CACHE, oc.pages.dropPages(n)
}

// openThere opens the file of h, whose name leads to it as far as the client of
// the storage knows, and describes it in st. The error is ESTALE if this is the
// first attempt and another host has put another file there.
func (oc *openCalls) openThere(h *handle, st *unix.Stat_t, first bool, in *fuse.InHeader) error {
	err := oc.openBacking(h, in)
	if err == nil {
		err = oc.client.lookOpened(h, st)
	}
	switch {
	case err == unix.ENOENT && first && (oc.storage.Lingers || oc.storage.KeepsNames):
		return unix.ESTALE
	case err != nil:
		return err
	case first && !h.write && oc.client.isReplaced(h.n, st):
		return unix.ESTALE
	}
	return oc.client.openedSole(h, st)
}

// serve lets requests use h. If its process has begun to lock for itself since
// it was asked, the open lock is given up.
func (oc *openCalls) serve(h *handle, in *fuse.InHeader) {
	if oc.ledger != nil {
		oc.conn.noteOpened(in.Unique, h.id)
		h.mu.Lock()
		oc.ledger.opens(h)
		h.mu.Unlock()
	}
	oc.handles.put(h.id, h)
	if h.proc.isSelfLocking() {
		oc.openLocks.locksItself(h)
	}
	if oc.point != nil {
		oc.point(in.Opcode, atOpened)
	}
}

// openBacking opens the file of h on the storage.
func (oc *openCalls) openBacking(h *handle, in *fuse.InHeader) error {
	flags := 0
	fd, err := oc.descriptors.withRoom(func() (fd int, err error) {
		err = oc.actor.allowed(in, func() (err error) {
			fd, flags, err = oc.client.openHandle(h)
			return err
		})
		return fd, err
	})
	h.mu.Lock()
	h.fd, h.flags = fd, flags
	h.mu.Unlock()
	return err
}

// truncateOpened is the O_TRUNC of an open, which has its lock now.
func (oc *openCalls) truncateOpened(cancel <-chan struct{}, h *handle, in *fuse.OpenIn) (st fuse.Status) {
	most := h.n.bounds.most.Load()
	defer func() { h.n.answersCut(most, st) }()
	c := &change{in: &in.InHeader, op: "truncate", h: h}
	defer h.fresh.Store(h.write)
	h.n.mayHaveSize(0)
	defer h.n.mayHaveSize(0) // it may have grown for another one meanwhile
	return status(oc.fence.change(cancel, c, func() error {
		if in.Mode&fuse.OPEN_KILL_SUIDGID != 0 {
			if err := oc.actor.dropSetID(&in.InHeader, h.fd); err != nil {
				return err
			}
		}
		// By path: O_TRUNC does not need a descriptor that can write.
		return h.n.cut(0, func() error {
			return oc.actor.allowed(&in.InHeader, func() error { return unix.Truncate(fdPath(h.fd), 0) })
		})
	}))
}
