package fusefs

import (
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// Create makes a regular file and opens it. The kernel has just been told that
// there is none.
//
// It holds the lock of the directory meanwhile, and nothing can end the wait
// of others for that. So this never waits for an open lock: the new file's is
// taken at once if nobody else need be asked, else in the background, and the
// first I/O waits for it; but see reopens.
func (oc *openCalls) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	dir, errno := oc.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	defer oc.tree.unpin(dir)
	if oc.private.hidden(dir, name) {
		return errHidden
	}
	oc.retries.abandonRetry(oc.retries.take(in.Pid))
	gen := oc.arrivals.all.Load()
	mode := modeIn(oc.acls, dir, in.Mode, in.Umask)
	for range createAttempts {
		began := oc.locker.Moment()
		fd, err := oc.createNew(cancel, in, dir, name, mode)
		if err == unix.EEXIST && in.Flags&unix.O_EXCL == 0 {
			st := oc.openExisting(in, dir, name, gen, out)
			if st == fuse.ENOENT {
				continue
			}
			return st
		}
		if err != nil {
			oc.client.notMade(dir, err)
			return status(err)
		}
		n, st, err := oc.finder.anchor(dir, name, fd)
		if err != nil {
			oc.fence.closeMade(&in.InHeader, fd)
			return status(err)
		}
		keepSetGID(fd, mode, &st)
		if oc.reopens(in, dir, name, mode) {
			oc.fence.closeMade(&in.InHeader, fd)
			oc.tree.forget(n.id, 1) // the kernel is not told
			oc.retries.abandonRetry(oc.retries.put(in.Pid, &retry{at: oc.now()}))
			return errStale
		}
		oc.attrs.fillEntry(&out.EntryOut, dir, name, n, &st, gen)
		oc.opened(n, fd, in, began, &out.OpenOut)
		return fuse.OK
	}
	return errStale
}

// reopens reports whether a file that was just made has to be opened as one
// that exists: where its open must wait, another process or host may have found
// the new file and be faster. The answer ESTALE
// makes the kernel do that. With O_EXCL it would then refuse the file, and a
// mode may not let its owner in again; then I/O waits, as for other files.
func (oc *openCalls) reopens(in *fuse.CreateIn, dir *node, name string, mode uint32) bool {
	need := map[uint32]uint32{unix.O_RDONLY: 0o400, unix.O_WRONLY: 0o200}[in.Flags&unix.O_ACCMODE]
	if need == 0 {
		need = 0o600
	}
	return in.Flags&unix.O_EXCL == 0 && mode&need == need && oc.waitsInOpen(dir, name)
}

// waitsInOpen reports whether the rule of a file wants that no two processes
// have it open, or no two nodes whatever they lock: then the lock is there when
// open(2) returns, for a new file, too.
func (oc *openCalls) waitsInOpen(dir *node, name string) bool {
	r := oc.opts.Rule(oc.tree.join(dir, name))
	return r.Open && (r.PerProcess || r.UntilClose)
}

// createAttempts is how often a file is made that another host makes first,
// and removes before it can be opened.
const createAttempts = 100

func (oc *openCalls) createNew(cancel <-chan struct{}, in *fuse.CreateIn, dir *node, name string, mode uint32) (fd int, err error) {
	flags := int(in.Flags)&keptFlags | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if err := oc.descriptors.hasRoom(); err != nil {
		return -1, err
	}
	fd = -1
	c := &change{in: &in.InHeader, op: "create", dir: dir, name: name, makes: unix.S_IFREG, mode: mode, fd: &fd,
		shares: in.Flags&unix.O_EXCL == 0, reopen: func() (err error) {
			fd, err = oc.openMade(dir, name, int(in.Flags)&keptFlags)
			return err
		}}
	err = oc.fence.create(cancel, c, making(oc.storage.Userspace, dir, name, func() (err error) {
		fd, err = unix.Openat(dir.fd, name, flags, mode)
		return err
	}))
	if err != nil {
		oc.fence.closeMade(&in.InHeader, fd) // it was made, but late
		return -1, err
	}
	return fd, nil
}

// openExisting opens the file that another host has made since the kernel was
// told that there is none. The kernel does not look at permissions any more,
// so it is opened with those of the program. Whatever is not a plain case gets
// ESTALE: the kernel looks up the path again, finds the file, and opens it as
// any other one.
func (oc *openCalls) openExisting(in *fuse.CreateIn, dir *node, name string, gen uint64, out *fuse.CreateOut) fuse.Status {
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd, &st); err != nil || st.Mode&unix.S_ISVTX != 0 {
		return errStale // sysctl fs.protected_regular
	}
	if in.Flags&(unix.O_TRUNC|unix.O_NONBLOCK) != 0 || oc.waitsInOpen(dir, name) {
		return errStale // what the lock says has to be known now
	}
	err := unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return status(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errStale
	}
	fd := -1
	open := func() (err error) {
		// O_NONBLOCK in case it is a fifo by now.
		flags := int(in.Flags)&keptFlags | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
		fd, err = unix.Openat(dir.fd, name, flags, 0)
		return err
	}
	err = oc.client.opening(&fd, func() error {
		if oc.actor.differs(&in.InHeader) {
			return oc.actor.as(&in.InHeader, withGroups, open)
		}
		return retryEINTR(open)
	})
	if err == unix.ENOENT {
		return fuse.ENOENT
	}
	if err != nil {
		return errStale
	}
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		closeFD(fd)
		return errStale
	}
	n := oc.tree.seen(dir, name, &st)
	if n == nil {
		if n, st, err = oc.finder.anchor(dir, name, fd); err != nil {
			closeFD(fd)
			return status(err)
		}
	}
	// The kernel may know it by another name, or by this one from before.
	oc.attrs.remembered(n, &in.InHeader, &out.Attr, func() fuse.Status {
		oc.attrs.fillEntry(&out.EntryOut, dir, name, n, &st, gen)
		return fuse.OK
	})
	oc.opened(n, fd, in, 0, &out.OpenOut)
	return fuse.OK
}

// Tmpfile makes a file without a name and opens it (O_TMPFILE). It may get a
// name by linkat(2) later.
func (oc *openCalls) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	dir, errno := oc.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	defer oc.tree.unpin(dir)
	mode := modeIn(oc.acls, dir, in.Mode, in.Umask)
	flags := int(in.Flags)&(keptFlags|unix.O_EXCL) | unix.O_TMPFILE | unix.O_CLOEXEC
	fd, began := -1, oc.locker.Moment()
	if err := oc.descriptors.hasRoom(); err != nil {
		return status(err)
	}
	make := func() (err error) {
		fd, err = unix.Openat(dir.fd, ".", flags, mode)
		return err
	}
	c := &change{in: &in.InHeader, op: "tmpfile", dir: dir, name: "(unnamed)", fd: &fd, reopen: make}
	err := oc.fence.create(cancel, c, make)
	if err != nil {
		oc.fence.closeMade(&in.InHeader, fd)
		return status(err)
	}
	n, st, err := oc.finder.anchor(nil, "", fd)
	if err != nil {
		oc.fence.closeMade(&in.InHeader, fd)
		return status(err)
	}
	keepSetGID(fd, mode, &st)
	out.NodeId, out.Generation = n.id, 1
	oc.attrs.fillAttr(&out.Attr, &st)
	n.mayHaveSize(st.Size)
	// Which rule is its own says the directory, until it has a name.
	oc.tree.callUnnamed(n, oc.tree.join(dir, ".unnamed-"+strconv.FormatUint(st.Ino, 10)))
	oc.opened(n, fd, in, began, &out.OpenOut)
	return fuse.OK
}

// opened makes the handle of a new file, whose open lock is taken at once, or
// asked for but not waited for. born is before the file was made; zero if somebody else made it.
func (oc *openCalls) opened(n *node, fd int, in *fuse.CreateIn, born locks.Moment, out *fuse.OpenOut) {
	h := oc.openLocks.newHandle(n, in.Flags, false, &in.InHeader)
	h.fd = fd
	h.filled = n.filled.Load()
	h.fresh.Store(h.write && born != 0)
	h.open.req.Born = born
	lock := h.open.state == openWaiting
	oc.openLocks.attach(h, h.open.state)
	oc.endLongCached(n)
	if lock && !oc.openLocks.lockNow(h) {
		h.mu.Lock()
		oc.openLocks.lockLater(h, false)
		h.mu.Unlock()
	}
	oc.serve(h, &in.InHeader)
	out.Fh = h.id
}

// modeIn is the mode of a new file. The umask counts only where the directory
// has no default ACL (acl(5), "Object creation and default ACLs"); the daemon
// has none of its own.
func modeIn(acls bool, dir *node, mode, umask uint32) uint32 {
	if acls {
		if _, err := unix.Getxattr(fdPath(dir.fd), aclDefault, nil); err == nil {
			return mode
		}
	}
	return mode &^ umask
}

// keepSetGID restores the setgid bit of a new file. The kernel has decided
// that the program may set it, perhaps because of a supplementary group that
// the storage did not know of.
func keepSetGID(fd int, mode uint32, st *unix.Stat_t) {
	if mode&unix.S_ISGID != 0 && st.Mode&unix.S_ISGID == 0 {
		if unix.Fchmod(fd, st.Mode&07777|unix.S_ISGID) == nil {
			st.Mode |= unix.S_ISGID
		}
	}
}
