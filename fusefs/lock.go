package fusefs

import (
	"runtime"
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// lockCalls serves requests about explicit locks, and those that end locks.
type lockCalls struct {
	*base
	attrs     *attrCache
	coherence *coherence
	fence     *fence
	openLocks *openLocks
	records   *lockRecords
	rules     *rules
}

// SetLk is fcntl(F_SETLK), fcntl(F_OFD_SETLK) and flock(LOCK_NB).
func (lc *lockCalls) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return lc.setLock(cancel, in, true)
}

// SetLkw is fcntl(F_SETLKW), fcntl(F_OFD_SETLKW), flock, and every unlocking.
func (lc *lockCalls) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return lc.setLock(cancel, in, false)
}

func (lc *lockCalls) setLock(cancel <-chan struct{}, in *fuse.LkIn, try bool) fuse.Status {
	h := lc.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	if in.Lk.Typ == unix.F_UNLCK {
		return lc.unlock(in, h)
	}
	p := lc.procs.find(in.Pid)
	lc.openLocks.locksForItself(h, p)
	req, ok := lc.lockRequest(in, h, p)
	if !ok {
		return fuse.EINVAL
	}
	if h.lost.Load() {
		return fuse.EIO
	}
	had := lc.heldBefore(h.n, req)
	req.Try = try
	req.Waits = lc.onWait(&in.InHeader)
	if req.Key.Class == locks.Posix {
		h.posixed.Store(true)
		lc.ledger.flag(h, handlePosixed)
		// Counted before it is asked for: another thread may close the file
		// while the grant is on its way, and FLUSH must then find it.
		h.n.posixUse.Add(1)
	} else {
		h.flocked.Store(true)
		lc.ledger.flag(h, handleFlocked)
	}
	g, err := lc.lockFor(cancel, &in.InHeader, req, false)
	if err != nil {
		if req.Key.Class == locks.Posix {
			h.n.posixUse.Add(-1)
		}
		return lockErrno(err, cancel)
	}
	lc.records.remember(h, p, req, g)
	if err := lc.tree.leads(h.n, req.Key.File); err != nil {
		lc.takeBack(h, req, had)
		return status(err)
	}
	return fuse.OK
}

// heldBefore is what the owner of req has locked of n already, where names can lead
// elsewhere.
func (lc *lockCalls) heldBefore(n *node, req *locks.Request) locks.Ranges {
	if !lc.tree.ids.paths {
		return nil
	}
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	if r := n.records[recordKey{req.Key.Class, req.Owner}]; r != nil {
		return slices.Clone(r.ranges)
	}
	return nil
}

// takeBack gives up a lock that was granted through h by a name that leads
// elsewhere, but for what its owner had before: that is lost, and stays so until
// its owner gives it up.
func (lc *lockCalls) takeBack(h *handle, req *locks.Request, had locks.Ranges) {
	k := recordKey{req.Key.Class, req.Owner}
	for _, rg := range locks.RangesOf(req.Range).Minus(had) {
		lc.locker.Unlock(req.Key, req.Owner, rg)
		lc.records.unremember(h.n, k, rg)
	}
	h.n.lockMu.Lock()
	defer h.n.lockMu.Unlock()
	if r := h.n.records[k]; r != nil {
		lc.fenced(h)
		r.spoil()
		lc.ledger.lock(r)
	}
}

// unlock asks who unlocks only where nobody has locked through h before. To
// find that out takes longer than all the rest.
func (lc *lockCalls) unlock(in *fuse.LkIn, h *handle) fuse.Status {
	if !h.flocked.Load() && !h.posixed.Load() {
		lc.openLocks.locksForItself(h, lc.procs.find(in.Pid))
	}
	class, owner, rg, ok := lockTarget(in, h)
	if !ok {
		return fuse.EINVAL
	}
	lc.records.unlocking()
	file, _ := lc.tree.identify(h.n)
	handed := lc.locker.Unlock(locks.Key{File: file, Class: class}, owner, rg)
	lc.records.unremember(h.n, recordKey{class, owner}, rg)
	if handed {
		// Whoever was let in goes first, on this processor: otherwise it
		// would wait until another one has woken up, which takes longer
		// than all the rest.
		runtime.Gosched()
	}
	return fuse.OK
}

// GetLk is fcntl(F_GETLK) and fcntl(F_OFD_GETLK). Looking is not locking: the
// process keeps its open locks. With F_UNLCK the latter looks for what the open
// file itself has locked (Linux 6.11); the kernel lets nothing else ask so.
func (lc *lockCalls) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	h := lc.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	if h.lost.Load() {
		return fuse.EIO
	}
	req, ok := lc.lockRequest(in, h, lc.procs.find(in.Pid))
	if !ok {
		return fuse.EINVAL
	}
	if in.Lk.Typ == unix.F_UNLCK {
		req.Mode = 0
	}
	lc.conn.willWait(in.Unique)
	c, err := lc.testFor(cancel, req)
	if err != nil {
		return lockErrno(err, cancel)
	}
	out.Lk = in.Lk
	if c == nil {
		out.Lk.Typ = unix.F_UNLCK
		return fuse.OK
	}
	out.Lk.Typ = unix.F_RDLCK
	if c.Mode == locks.Write {
		out.Lk.Typ = unix.F_WRLCK
	}
	out.Lk.Start, out.Lk.End = c.Range.Start, c.Range.End-1
	out.Lk.Pid = 0
	if c.Node == "" {
		// The kernel shows 0 for a process that this host does not have.
		out.Lk.Pid = uint32(c.PID)
	}
	return fuse.OK
}

// lockTarget says in the words of the engine what a lock call is about.
//
// The owner of a flock lock is the open file, as flock(2) has it. The kernel
// has a number for it, too, but that may be used again before the RELEASE that
// ends the lock arrives; the number of the handle is not. For POSIX locks the
// owner is the table of open files of the process, and the kernel's number is
// the only name of it. An OFD lock comes as a POSIX lock whose owner is the
// open file; what came through a handle goes with it.
func lockTarget(in *fuse.LkIn, h *handle) (c locks.Class, o locks.OwnerID, rg locks.Range, ok bool) {
	if in.Lk.Start > in.Lk.End || in.Lk.End >= locks.MaxOffset {
		return 0, 0, locks.Range{}, false
	}
	if in.LkFlags&fuse.LK_FLOCK != 0 {
		return locks.Flock, locks.OwnerID(h.id), locks.Whole, true
	}
	return locks.Posix, locks.OwnerID(in.Owner), locks.Range{Start: in.Lk.Start, End: in.Lk.End + 1}, true
}

// lockRequest says in the words of the engine what the kernel asks for.
func (lc *lockCalls) lockRequest(in *fuse.LkIn, h *handle, p *process) (*locks.Request, bool) {
	class, owner, rg, ok := lockTarget(in, h)
	if !ok {
		return nil, false
	}
	r := &locks.Request{
		Key:     locks.Key{Class: class},
		Owner:   owner,
		Handle:  h.lockID(),
		Mode:    locks.Read,
		Range:   rg,
		Program: lc.procs.program(p, &in.InHeader),
	}
	switch in.Lk.Typ {
	case unix.F_RDLCK, unix.F_UNLCK:
	case unix.F_WRLCK:
		r.Mode = locks.Write
	default:
		return nil, false
	}
	r.Key.File, r.Path = lc.tree.identify(h.n)
	r.Patience = lc.rules.of(h.n, r.Path).patience()
	return r, true
}

// Flush comes at every close(2), with the POSIX lock owner of the process: its
// POSIX locks on the file end, whatever descriptor they came through
// (fcntl(2), "Advisory record locking"). Locks of class open and flock, and
// OFD locks, end with the last descriptor, in Release.
func (lc *lockCalls) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	h := lc.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	n := h.n
	h.closing.Store(true)
	st := lc.flushStorage(h)
	if before := lc.tellAtClose(h, in.Pid); before != nil {
		lc.ledger.told(&in.InHeader, h)
		st = status(before)
	}
	if n.posixUse.Load() > 0 {
		lc.records.unlocking()
		owner := locks.OwnerID(in.LockOwner)
		file, _ := lc.tree.identify(n)
		lc.locker.UnlockOwner(locks.Key{File: file, Class: locks.Posix}, owner)
		lc.records.unremember(n, recordKey{locks.Posix, owner}, locks.Whole)
	}
	lc.mayEnd(h)
	return st
}

// mayEnd tells that the explicit locks that came through h end now if that was
// the last close.
func (lc *lockCalls) mayEnd(h *handle) {
	flocked, posixed := h.flocked.Load(), h.posixed.Load()
	if !flocked && !posixed {
		return
	}
	file, _ := lc.tree.identify(h.n)
	if flocked {
		lc.locker.Closing(locks.Key{File: file, Class: locks.Flock}, h.lockID())
	}
	if posixed {
		lc.locker.Closing(locks.Key{File: file, Class: locks.Posix}, h.lockID())
	}
}

// Release comes after the last close(2) and munmap(2), when nobody waits for
// it any more; often the next open has come before.
func (lc *lockCalls) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	h := lc.handles.take(in.Fh)
	if h == nil {
		return
	}
	lc.release(h)
}

func (lc *lockCalls) release(h *handle) {
	defer lc.fence.closes.happened()
	h.mu.Lock()
	h.released = true
	lc.coherence.writeBack(h) // while the lock is held
	lc.openLocks.withdraw(h)
	locked, key := h.open.state != openNone, h.open.req.Key // a rename of the file gives it another one
	if h.holds.Load() {
		lc.attrs.noteVersion(h)
	}
	lc.ledger.closes(h)
	h.mu.Unlock()
	closeFD(h.fd)
	if locked {
		lc.locker.UnlockHandle(key, h.lockID(), "closed")
	}
	lc.records.forgetHandle(h)
	if h.flocked.Load() || h.posixed.Load() {
		file, _ := lc.tree.identify(h.n)
		if h.flocked.Load() {
			lc.locker.UnlockHandle(locks.Key{File: file, Class: locks.Flock}, h.lockID(), "closed")
		}
		if h.posixed.Load() {
			lc.locker.UnlockHandle(locks.Key{File: file, Class: locks.Posix}, h.lockID(), "closed")
		}
	}
	lc.openLocks.detach(h)
}

// flushStorage gives the client of the storage the occasion to tell at
// close(2) what became of the data: NFS reports a full or a broken server there.
func (lc *lockCalls) flushStorage(h *handle) fuse.Status {
	if !lc.storage.ClientCache || !h.write {
		return fuse.OK
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	fd, err := unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return status(err)
	}
	if err = unix.Close(fd); err != nil && !isGone(err) {
		h.n.unwritten.failed(err)
		h.n.noteUnwritten() // who closes may be nobody who looks
	}
	return status(err)
}

// tellAtClose is tell for one of perhaps several close(2). A child between fork
// and exec closes what it has inherited, and nobody looks at what it is told.
// So what others are told than the process that has opened the file does not
// count.
func (lc *lockCalls) tellAtClose(h *handle, tid uint32) error {
	if h.n.unwritten.count.Load() == h.knows.Load() {
		return nil
	}
	return h.tell(h.proc != nil && lc.procs.find(tid) != h.proc)
}
