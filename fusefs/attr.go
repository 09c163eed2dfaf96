package fusefs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// attrCalls serves requests about attributes, plain and extended.
type attrCalls struct {
	*base
	actor     *actor
	attrs     *attrCache
	client    *client
	fence     *fence
	finder    *finder
	openLocks *openLocks
	pages     *pageCache
	records   *lockRecords
	retries   *retries
	waits     *waits
}

func (ac *attrCalls) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, errno := ac.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	defer ac.tree.unpin(n)
	if in.Flags()&fuse.FUSE_GETATTR_FH != 0 {
		if st := ac.settle(cancel, in); !st.Ok() {
			return st
		}
	} else {
		ac.waits.goesBy(n, in.Pid)
		return ac.attrs.keepAttr(&in.InHeader, n, out)
	}
	return ac.attrs.answerAttr(n, out, true)
}

// settle is for a GETATTR that read(2) or lseek(2) sends through a handle
// before they look at what the kernel has cached. The open lock is taken now
// if it was given away, and not when a READ comes: that keeps pages locked
// while it waits. What the kernel is just dropping it drops first.
func (ac *attrCalls) settle(cancel <-chan struct{}, in *fuse.GetAttrIn) fuse.Status {
	h := ac.handles.get(in.Fh())
	if h == nil {
		return fuse.OK
	}
	if h.n.unsettled.Load() > 0 {
		a, st := ac.fence.enter(cancel, h, &in.InHeader, looks)
		if !st.Ok() {
			return st
		}
		ac.fence.leave(&a)
	}
	ac.attrs.growLate(h.n, h.n.fd)
	if st := ac.waits.awaitDrops(cancel, h.n, &in.InHeader); !st.Ok() {
		return st
	}
	if h.n.blocked.Load() == 0 {
		return fuse.OK
	}
	st := ac.waits.awaitUnblocked(cancel, h.n, &in.InHeader, func() bool { return ac.attrs.hasNewSize(h.n) })
	if st.Ok() && h.n.blocked.Load() > 0 {
		st = status(ac.pages.dropPages(h.n)) // the kernel is not told that it should
	}
	return st
}

// Statx is GETATTR for what only statx(2) tells: the time of birth.
func (ac *attrCalls) Statx(cancel <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	n, errno := ac.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	defer ac.tree.unpin(n)
	ac.waits.goesBy(n, in.Pid)
	ttl := ac.attrs.attrTTLOf(n)
	_ = ac.client.lookAt(n)
	var st unix.Statx_t
	flags := unix.AT_EMPTY_PATH | int(in.SxFlags)&(unix.AT_STATX_FORCE_SYNC|unix.AT_STATX_DONT_SYNC)
	err := ac.attrs.untilNow(func() error {
		err := ac.attrs.sizeOf(n, func() (int64, error) {
			err := retryEINTR(func() error { return unix.Statx(n.fd, "", flags, int(in.SxMask), &st) })
			return int64(st.Size), err
		})
		if err == nil {
			ac.client.stayX(n, &st)
			ac.attrs.tells(n, versionOfX(&st), false)
		}
		return err
	})
	if err != nil {
		return status(err)
	}
	out.FromStatx(&st)
	out.Ino = ac.devices.ino(unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino)
	out.SetTimeout(ttl)
	return fuse.OK
}

// setsSomething are the fields of SETATTR that this file system serves.
const setsSomething = fuse.FATTR_UID | fuse.FATTR_GID | fuse.FATTR_MODE | fuse.FATTR_SIZE | fuse.FATTR_ATIME | fuse.FATTR_MTIME

// SetAttr is chmod, chown, utimensat and truncate in one. The kernel has
// checked that the program may do it.
func (ac *attrCalls) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) (st fuse.Status) {
	n, errno := ac.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	defer ac.tree.unpin(n)
	// The owner first, because that clears the bits of the mode; the times
	// last, because everything else sets them.
	nothing := in.Valid&setsSomething == 0
	if nothing && ac.mayNotChown(&in.InHeader, n) {
		if n.isWritable() {
			// The kernel asks for the same before a program writes. The bits
			// are cleared by what follows, see dropSetID.
			return ac.attrs.answerAttr(n, out, false)
		}
		return fuse.EPERM
	}
	n.changesHere()
	set := func(op string, call func() error) error {
		c := &change{in: &in.InHeader, op: op, files: [2]*node{n}}
		if fh, ok := in.GetFh(); ok {
			c.through = ac.handles.get(fh)
		}
		return ac.fence.alter(cancel, c, call)
	}
	if in.Valid&(fuse.FATTR_UID|fuse.FATTR_GID) != 0 || nothing {
		uid, gid := -1, -1
		if u, ok := in.GetUID(); ok {
			uid = int(u)
		}
		if g, ok := in.GetGID(); ok {
			gid = int(g)
		}
		err := set("chown", func() error { return unix.Fchownat(n.fd, "", uid, gid, unix.AT_EMPTY_PATH) })
		if err != nil {
			return status(err)
		}
	}
	if mode, ok := in.GetMode(); ok {
		err := set("chmod", func() error { return unix.Fchmodat(ac.fds, itoa(n.fd), mode, 0) })
		if err != nil {
			return status(err)
		}
	}
	if size, ok := in.GetSize(); ok {
		most := n.bounds.most.Load()
		defer func() { n.answersCut(most, st) }()
		if st := ac.setSize(cancel, n, in, size); !st.Ok() {
			return st
		}
	}
	if in.Valid&(fuse.FATTR_ATIME|fuse.FATTR_MTIME) != 0 {
		ts := []unix.Timespec{
			timespec(in.Valid, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, in.Atime, in.Atimensec),
			timespec(in.Valid, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, in.Mtime, in.Mtimensec),
		}
		err := set("utimes", func() error { return unix.UtimesNanoAt(ac.fds, itoa(n.fd), ts, 0) })
		if err != nil {
			return status(err)
		}
	}
	return ac.attrs.answerSize(n, &in.InHeader, out)
}

// mayNotChown is about chown(2) with neither owner nor group, for which the
// kernel asks to set nothing. It sets the time of the last change, as anybody
// may, and clears the bits of the mode that a chown clears. That only the owner
// may do, and the kernel did not look.
func (ac *attrCalls) mayNotChown(in *fuse.InHeader, n *node) bool {
	var st unix.Stat_t
	if in.Uid == 0 || unix.Fstat(n.fd, &st) != nil || in.Uid == st.Uid || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return false
	}
	return ac.actor.withoutSetID(in, &st) != st.Mode
}

func timespec(valid, set, now uint32, sec uint64, nsec uint32) unix.Timespec {
	switch {
	case valid&set == 0:
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	case valid&now != 0:
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	}
	return unix.Timespec{Sec: int64(sec), Nsec: int64(nsec)}
}

// setSize is ftruncate(2), with a handle; or truncate(2), which takes an open
// lock for as long as it lasts.
func (ac *attrCalls) setSize(cancel <-chan struct{}, n *node, in *fuse.SetAttrIn, size uint64) (st fuse.Status) {
	fh, ok := in.GetFh()
	h := ac.handles.get(fh)
	byName := !ok || h == nil
	if byName {
		again := ac.retries.take(in.Pid)
		ac.retries.abandonRetry(again)
		defer func() {
			if st == bequeathed {
				ac.retries.putBack(in.Pid, again)
			}
		}()
		h = ac.openLocks.newHandle(n, unix.O_WRONLY, true, &in.InHeader)
		ac.openLocks.attach(h, h.open.state)
		defer ac.openLocks.abandon(h)
		if h.open.state == openWaiting {
			// The kernel holds back what it would write to the file now, so
			// that nobody must wait for it to drop pages.
			letsGo, unpark := ac.waits.parkRequest(n, &in.InHeader)
			over, stop := either(cancel, letsGo, unpark)
			err := ac.openLocks.lockOpened(over, h, false, &in.InHeader)
			stop()
			if err != nil && closed(letsGo) && !closed(cancel) && !errors.Is(err, locks.ErrBequeathed) {
				return ac.retries.truncateLater(&in.InHeader, again)
			}
			if err != nil {
				return lockErrno(err, cancel)
			}
		}
		// truncate(2), too, looks again after ESTALE; but not twice.
		if _, _, err := ac.finder.verifyName(&in.InHeader, n); err != nil && (err != unix.ESTALE || !again.isTruncate()) {
			return status(err)
		}
	}
	if !byName || !h.open.alone { // else they wait for h, see awaitBeforeTruncation
		if st := ac.waits.awaitUnblocked(cancel, n, &in.InHeader, nil); !st.Ok() {
			return st
		}
	}
	path := fdPath(n.fd)
	c := &change{in: &in.InHeader, op: "truncate", h: h, off: int64(size)}
	return status(ac.fence.change(cancel, c, func() error {
		if in.Valid&fuse.FATTR_KILL_SUIDGID != 0 {
			if err := ac.actor.dropSetIDOf(&in.InHeader, n); err != nil {
				return err
			}
		}
		return n.cut(int64(size), func() error {
			if h.fd >= 0 && h.write {
				return retryEINTR(func() error { return unix.Ftruncate(h.fd, int64(size)) })
			}
			return ac.actor.allowed(&in.InHeader, func() error { return unix.Truncate(path, int64(size)) })
		})
	}))
}

func (ac *attrCalls) StatFs(cancel <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	n, errno := ac.finder.node(in)
	if !errno.Ok() {
		return errno
	}
	defer ac.tree.unpin(n)
	ac.tree.closings.wait(cancel) // what was removed is free, to who asks after that
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Fstatfs(n.fd, &st) }); err != nil {
		return status(err)
	}
	out.Blocks, out.Bfree, out.Bavail = st.Blocks, st.Bfree, st.Bavail
	out.Files, out.Ffree = st.Files, st.Ffree
	out.Bsize, out.Frsize = uint32(st.Bsize), uint32(st.Frsize)
	out.NameLen = uint32(st.Namelen)
	return fuse.OK
}
