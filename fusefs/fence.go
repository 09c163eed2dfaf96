package fusefs

import (
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// The fence is in front of every system call that changes the storage; see
// operations.go for what passes it where. It asks whether the locks still hold
// under which the program that makes the change counts on being alone. These
// are
//
//   - the explicit locks that it has taken, and those that came through files
//     that it has opened, whatever files they are on: a lock file protects
//     others;
//   - those of the processes that it descends from: flock(1) locks for the
//     command that it runs, and a shell locks for all of its commands;
//   - its open locks between processes, which are locks like any other;
//   - the open locks of the file itself that the change is about.
//
// Whoever has lost one of them gets EIO (from enter and admit, in admission.go,
// and from inTime if the change came too late), until it has closed what it locked
// through, or has unlocked it. Who has no lock passes: most programs do, and
// for them it is a look at a counter.

// fence admits what programs do: changes of the storage here, and all I/O
// through handles in admission.go.
type fence struct {
	*base
	actor     *actor
	stirring  *stirring
	pages     *pageCache
	waits     *waits
	records   *lockRecords
	openLocks *openLocks
	leases    *leases
	evidence  *evidence
	touches   touches
	underway  underway
	closes    closes
}

// change is one operation that changes the storage.
type change struct {
	in *fuse.InHeader
	op string // as people call it
	// h is the handle through which it is made. It is admitted as reads are,
	// and waits for the open lock of h. Nil: by name.
	h *handle
	// from is the handle through which is read what is copied to h; or nil.
	from *handle
	// back: what the kernel writes back from mapped pages through h.
	back bool
	// through is a handle that the change came by, but which does not have to
	// have its open lock: fchmod(2) of a new file does not wait for that.
	through *handle
	// files are those that are changed, or that lose or get a name. They are
	// pinned, and may be nil.
	files [2]*node
	// dir and name are what it is called, where that says more than files do:
	// where names change. leave is the other directory of a rename, or nil.
	dir   *node
	name  string
	leave *node

	off    int64
	length int

	// What it does to names, or appends, by which it is found out whether a process
	// that was killed has done it: see again.go.
	makes    uint32 // the kind of what gets the name
	shares   bool   // or what has it already will do
	mode     uint32
	target   string // of a symbolic link
	links    *node  // gets the name
	removes  bool   // the name
	moves    string // what is called so in leave gets the name
	exchange bool   // and the other one that
	whiteout bool   // and there is something else then
	data     []byte // is appended
	writes   []byte // is written where off says, by the program itself
	// looksDone reports whether an extended attribute is as c makes it, where that says more
	// than the outcome of call; or nil.
	looksDone func() bool
	// fd is where call puts the descriptor of what it makes, and reopen opens that
	// when it is there.
	fd     *int
	reopen func() error
	// again: another process had begun it. repeated: it was done by that, and call
	// was not called.
	again, repeated bool
	// partly is set by a call that fails, but has changed something before.
	partly bool
}

// change passes the fence and makes a change: call is the system call. It waits
// while the node is suspended, if the program has locks. An error of the fence
// is an errno, as those of call are. When the locks may have been lost before
// call was over the error is EIO, although call has returned.
//
// REQUIRES: the caller is not admitted to a file.
func (f *fence) change(cancel <-chan struct{}, c *change, call func() error) error {
	t := f.track(c)
	if yes, err := f.wasMade(&t, c); yes {
		return err
	}
	f.findOut(&t, c)
	err := f.admitted(cancel, &t, c, call)
	if err == errNotHeld {
		f.findOutWritten(&t, c)
		err = f.admitted(cancel, &t, c, call)
	}
	return err
}

// admitted is change for what is left to do.
func (f *fence) admitted(cancel <-chan struct{}, t *tracked, c *change, call func() error) error {
	a, st := f.enterLeased(cancel, c, t.past != nil)
	switch {
	case t.past != nil && !st.Ok():
		f.evidence.close(c)
		return f.evidence.guess(c) // it may have been done
	case st == fuse.EINTR:
		return errLetGo
	case st == bequeathed:
		return locks.ErrBequeathed
	}
	if !st.Ok() {
		return unix.Errno(st)
	}
	err := f.do(t, c, &a, call)
	if (err == nil || c.partly) && c.h == nil && f.leases.keepsSome() {
		f.forgetOld(c)
	}
	f.leases.end(a.leased)
	if c.h != nil {
		f.wrote(c.h)
	}
	if err == nil && c.dir != nil {
		f.stirring.changedNames(c.in, c.dir, c.leave)
	}
	f.leave(&a)
	if err != nil && !c.partly {
		return err
	}
	if !f.inTime(&a, c) {
		return unix.EIO
	}
	return err
}

// forgetOld makes the kernel ignore answers about the attributes of what a change by name
// has changed that are on their way to it, from before. When it hears that the change was
// made it asks anew by itself; but if a program that was answered before gets a processor
// after that, it would take over the old ones, for as long as it was told.
func (f *fence) forgetOld(c *change) {
	for _, n := range [...]*node{c.dir, c.leave, c.files[0], c.files[1]} {
		if n != nil {
			if n.isRegular() {
				awaitEnds(f.base, n)
			}
			n.notified.Add(1)
			f.dev.forgetAttr(n.id)
		}
	}
}

// alter is change for what the daemon may do on behalf of a program, see allowed.
func (f *fence) alter(cancel <-chan struct{}, c *change, call func() error) error {
	return f.change(cancel, c, func() error { return f.actor.allowed(c.in, call) })
}

// enterLeased is enterChange, and counts the change with the lease of names: when
// it is over leases.end must be called. It waits for the hosts that keep names
// while it is not admitted, because those may wait for locks of this one.
//
// What the kernel writes back does not wait: a new view waits for that, and no
// lock is granted before. Nor does what another process had begun: nobody keeps
// anything under the lease that it had.
func (f *fence) enterLeased(cancel <-chan struct{}, c *change, again bool) (admission, fuse.Status) {
	for {
		a, st := f.enterChange(cancel, c)
		if !st.Ok() {
			return a, st
		}
		wait := f.leases.begin()
		if a.leased = wait == nil; a.leased || c.back || again {
			return a, fuse.OK
		}
		f.leave(&a)
		if st := f.awaitLease(cancel, &a, c.in, wait); !st.Ok() {
			return a, st
		}
	}
}

// awaitLease waits for a round of the lease; a was the admission of the change.
func (f *fence) awaitLease(cancel <-chan struct{}, a *admission, in *fuse.InHeader, wait *leaseRound) fuse.Status {
	f.conn.willWait(in.Unique)
	letsGo, unpark := f.parkAdmission(a, in)
	defer unpark()
	over, stop := f.waits.waitOver(cancel, in, letsGo)
	defer stop()
	return f.pause.await(wait.done, over, func() fuse.Status {
		if wait.err != nil {
			f.log.Warn("a change was refused: whether other hosts keep what it changes cannot be known", "pid", in.Pid, "err", wait.err)
			return fuse.EIO
		}
		return fuse.OK
	})
}

// enterChange waits until a change may be made.
func (f *fence) enterChange(cancel <-chan struct{}, c *change) (admission, fuse.Status) {
	switch {
	case c.back:
		return f.enterCached(cancel, c.h, c.in)
	case c.from != nil && c.from != c.h:
		return f.enterBoth(cancel, c)
	case c.h != nil:
		return f.enter(cancel, c.h, c.in, changes)
	}
	var w closeWait
	for {
		a := admission{under: f.underway.begin()}
		f.standing(&a, c)
		st, again := f.admit(cancel, &a, c.in, &w)
		if !again {
			return a, st
		}
	}
}

// standing finds the locks that protect a change by name.
func (f *fence) standing(a *admission, c *change) {
	open := false
	for _, n := range c.files {
		open = open || n != nil && n.hasHandles()
	}
	if f.records.explicit.Load() == 0 && !open && c.through == nil {
		return
	}
	if h := c.through; h != nil {
		a.coverHeld(h.held.Load())
		a.coverOpen(h)
	}
	f.coverProgram(a, c.in, func(p *process) {
		if !open {
			return
		}
		for _, n := range c.files {
			if n != nil {
				n.coverOpened(a, p)
			}
		}
	})
}

// coverProgram makes a depend on the locks of the program that makes a request,
// and of those that it descends from. It calls also for each of them.
func (f *fence) coverProgram(a *admission, in *fuse.InHeader, also func(*process)) {
	p := f.procs.find(in.Pid)
	for depth := 0; p != nil && depth < maxAncestors; depth++ {
		a.coverHeld(p.held.Load())
		also(p)
		p = f.procs.ancestor(p)
	}
}

// coverOpened makes a depend on the open locks of n that p has.
func (n *nodeLocks) coverOpened(a *admission, p *process) {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	for h := range n.handles {
		if h.proc == p {
			a.coverOpen(h)
		}
	}
}

// coverOpen makes a depend on the open lock of h.
func (a *admission) coverOpen(h *handle) {
	if h.lost.Load() {
		a.cover(brokenTenure, true)
	}
	since := h.since.Load()
	a.cover(locks.Tenure(since-1), since > 0)
}

// inTime is asked after a change, when its admission has ended. It reports false
// if the change may have been carried out when the tenure was over, and tells
// whom it concerns.
func (f *fence) inTime(a *admission, c *change) bool {
	if !a.protected || f.locker.Admit(closedChan, a.tenure) == nil {
		return true
	}
	// Not live now, perhaps not live during the change. If the tenure goes on
	// nobody else was let in meanwhile.
	f.conn.willWait(c.in.Unique)
	_, unpark := f.parkAdmission(a, c.in)
	err := f.locker.Admit(nil, a.tenure)
	unpark()
	if err == nil {
		return true
	}
	if a.h != nil {
		f.fenced(a.h)
	}
	if f.opts.LateWrite != nil {
		f.opts.LateWrite(f.late(c))
	}
	return false
}

// late describes a change that came too late.
func (f *fence) late(c *change) LateWrite {
	w := LateWrite{
		Operation: c.op, Offset: c.off, Length: c.length,
		Program: f.procs.program(f.procs.find(c.in.Pid), c.in),
	}
	n := c.files[0]
	if c.h != nil {
		n = c.h.n
	}
	if n != nil {
		w.File, w.Path = f.tree.identify(n)
	}
	if c.dir != nil {
		w.Path = f.tree.join(c.dir, c.name)
	}
	return w
}

// underway are the changes by name that have passed the fence and are not over.
type underway struct {
	mu  sync.Mutex
	now *span
}

// span is a time, from one call of underway.ended to the next.
type span struct {
	changes int
	over    bool
	done    chan struct{} // closed when it is over, and its changes are
}

func (u *underway) begin() *span {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.now == nil {
		u.now = &span{done: make(chan struct{})}
	}
	u.now.changes++
	return u.now
}

func (u *underway) end(s *span) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s.changes--; s.changes == 0 && s.over {
		close(s.done)
	}
}

// ended is closed when all changes are over that have begun before.
func (u *underway) ended() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.now
	if s == nil {
		return closedChan
	}
	u.now = nil
	if s.over = true; s.changes == 0 {
		close(s.done)
	}
	return s.done
}

// A program that closes what it has locked through may go on before the RELEASE
// is carried out that tells of it. So whoever has lost a lock elsewhere is told
// so only when what is being closed now has been closed.

// closeWait is how one request waits for that.
type closeWait struct {
	until time.Time
	next  <-chan struct{} // closed by the next RELEASE
}

// closeTime is longer than a RELEASE takes, unless the storage hangs.
const closeTime = 50 * time.Millisecond

// awaitClose waits for the next RELEASE that is carried out, but for closeTime
// in all. It reports whether locks may have ended since it was called last, and
// the caller has to look again.
func (f *fence) awaitClose(w *closeWait) bool {
	if w.next == nil {
		w.until = time.Now().Add(closeTime)
	} else {
		t := time.NewTimer(time.Until(w.until))
		defer t.Stop()
		select {
		case <-w.next:
		case <-t.C:
			return false
		}
	}
	w.next = f.closes.next()
	return true
}

// closes tells who waits that a RELEASE was carried out. The zero value is ready.
type closes struct {
	mu      sync.Mutex
	waiting chan struct{} // nil: nobody waits
}

func (c *closes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = make(chan struct{})
	}
	return c.waiting
}

func (c *closes) happened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting != nil {
		close(c.waiting)
		c.waiting = nil
	}
}

// spaceFreed is asked after a call that has failed with err. If the storage has
// no space left, but some is being freed, it waits for that and reports that
// the call should be made once more: a program that has just removed a file
// counts on its space.
// REQUIRES: the caller is not admitted to any file.
func (f *fence) spaceFreed(cancel <-chan struct{}, err error) bool {
	return (err == unix.ENOSPC || err == unix.EDQUOT) && f.tree.closings.wait(cancel)
}

// create runs a call that makes a file, with the file system IDs of the
// program that asks: the new file belongs to it, by the same rules as always
// (directories with the setgid bit, quotas).
//
// The kernel has already decided that the program may do this. With its IDs
// alone the storage may decide otherwise, because it does not know its
// supplementary groups; then the call is made once more with those, and with
// the daemon's capabilities.
func (f *fence) create(cancel <-chan struct{}, c *change, call func() error) error {
	once := func() error { return f.actor.createOnce(c.in, call) }
	err := f.change(cancel, c, once)
	if f.spaceFreed(nil, err) {
		err = f.change(cancel, c, once)
	}
	return err
}

// wrote records that the storage's client may keep something back that was
// written through h. It is called after the system call and before the answer:
// a sync for another lock may be under way meanwhile, and not include it.
func (f *fence) wrote(h *handle) {
	if f.storage.ClientCache {
		h.wrote.Store(true)
	}
}
