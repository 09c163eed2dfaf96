package fusefs

import (
	"runtime"

	"dmxfs/locks"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// SetLk is fcntl(F_SETLK), fcntl(F_OFD_SETLK) and flock(LOCK_NB).
func (f *fileSystem) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return f.setLock(cancel, in, true)
}

// SetLkw is fcntl(F_SETLKW), fcntl(F_OFD_SETLKW), flock, and every unlocking.
func (f *fileSystem) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return f.setLock(cancel, in, false)
}

func (f *fileSystem) setLock(cancel <-chan struct{}, in *fuse.LkIn, try bool) fuse.Status {
	h := f.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	if in.Lk.Typ == unix.F_UNLCK {
		return f.unlock(in, h)
	}
	p := f.procs.find(in.Pid)
	f.openLocks.locksForItself(h, p)
	req, ok := f.lockRequest(in, h, p)
	if !ok {
		return fuse.EINVAL
	}
	if h.lost.Load() {
		return fuse.EIO
	}
	req.Try = try
	req.Waits = f.handsOver(&in.InHeader)
	if req.Key.Class == locks.Posix {
		h.posixed.Store(true)
		// Counted before it is asked for: another thread may close the file
		// while the grant is on its way, and FLUSH must then find it.
		h.n.posixUse.Add(1)
	} else {
		h.flocked.Store(true)
	}
	g, err := f.locker.Lock(cancel, req)
	if err != nil {
		if req.Key.Class == locks.Posix {
			h.n.posixUse.Add(-1)
		}
		return lockErrno(err, cancel)
	}
	f.records.remember(h, p, req, g)
	if err := f.tree.leads(h.n, req.Key.File); err != nil {
		f.locker.Unlock(req.Key, req.Owner, req.Range)
		f.records.unremember(h.n, recordKey{req.Key.Class, req.Owner}, req.Range)
		return status(err)
	}
	return fuse.OK
}

// unlock asks who unlocks only where nobody has locked through h before. To
// find that out takes longer than all the rest.
func (f *fileSystem) unlock(in *fuse.LkIn, h *handle) fuse.Status {
	if !h.flocked.Load() && !h.posixed.Load() {
		f.openLocks.locksForItself(h, f.procs.find(in.Pid))
	}
	class, owner, rg, ok := lockTarget(in, h)
	if !ok {
		return fuse.EINVAL
	}
	file, _ := f.tree.identify(h.n)
	handed := f.locker.Unlock(locks.Key{File: file, Class: class}, owner, rg)
	f.records.unremember(h.n, recordKey{class, owner}, rg)
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
func (f *fileSystem) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	h := f.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	if h.lost.Load() {
		return fuse.EIO
	}
	req, ok := f.lockRequest(in, h, f.procs.find(in.Pid))
	if !ok {
		return fuse.EINVAL
	}
	if in.Lk.Typ == unix.F_UNLCK {
		req.Mode = 0
	}
	f.conn.handOver(in.Unique)
	c, err := f.locker.Test(cancel, req)
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
func (f *fileSystem) lockRequest(in *fuse.LkIn, h *handle, p *process) (*locks.Request, bool) {
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
		Program: f.procs.program(p, &in.InHeader),
	}
	switch in.Lk.Typ {
	case unix.F_RDLCK, unix.F_UNLCK:
	case unix.F_WRLCK:
		r.Mode = locks.Write
	default:
		return nil, false
	}
	r.Key.File, r.Path = f.tree.identify(h.n)
	r.Patience = f.rules.of(h.n, r.Path).patience()
	return r, true
}

// Flush comes at every close(2), with the POSIX lock owner of the process: its
// POSIX locks on the file end, whatever descriptor they came through
// (fcntl(2), "Advisory record locking"). Locks of class open and flock, and
// OFD locks, end with the last descriptor, in Release.
func (f *fileSystem) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	h := f.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	n := h.n
	st := f.flushStorage(h)
	if before := f.tellAtClose(h, in.Pid); before != nil {
		st = status(before)
	}
	if n.posixUse.Load() > 0 {
		owner := locks.OwnerID(in.LockOwner)
		file, _ := f.tree.identify(n)
		f.locker.UnlockOwner(locks.Key{File: file, Class: locks.Posix}, owner)
		f.records.unremember(n, recordKey{locks.Posix, owner}, locks.Whole)
	}
	f.mayEnd(h)
	return st
}

// mayEnd tells that the explicit locks that came through h end now if that was
// the last close.
func (f *fileSystem) mayEnd(h *handle) {
	flocked, posixed := h.flocked.Load(), h.posixed.Load()
	if !flocked && !posixed {
		return
	}
	file, _ := f.tree.identify(h.n)
	if flocked {
		f.locker.Closing(locks.Key{File: file, Class: locks.Flock}, h.lockID())
	}
	if posixed {
		f.locker.Closing(locks.Key{File: file, Class: locks.Posix}, h.lockID())
	}
}

// Release comes after the last close(2) and munmap(2), when nobody waits for
// it any more; often the next open has come before.
func (f *fileSystem) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	h := f.handles.take(in.Fh)
	if h == nil {
		return
	}
	f.release(h)
}

func (f *fileSystem) release(h *handle) {
	defer f.fence.closes.happened()
	h.mu.Lock()
	h.released = true
	f.coherence.writeBack(h) // while the lock is held
	f.openLocks.withdraw(h)
	locked, key := h.open.state != openNone, h.open.req.Key // a rename of the file gives it another one
	if h.holds.Load() {
		f.attrs.noteVersion(h)
	}
	h.mu.Unlock()
	closeFD(h.fd)
	if locked {
		f.locker.UnlockHandle(key, h.lockID(), "closed")
	}
	f.records.forgetHandle(h)
	if h.flocked.Load() || h.posixed.Load() {
		file, _ := f.tree.identify(h.n)
		if h.flocked.Load() {
			f.locker.UnlockHandle(locks.Key{File: file, Class: locks.Flock}, h.lockID(), "closed")
		}
		if h.posixed.Load() {
			f.locker.UnlockHandle(locks.Key{File: file, Class: locks.Posix}, h.lockID(), "closed")
		}
	}
	f.openLocks.detach(h)
}
