package fusefs

import (
	"errors"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/dmxfs/dmxfs/locks"
)

// Locker is what the mount asks of the lock engine. All methods are safe for
// concurrent use, and none of them may call back into the mount while it holds
// a lock of its own that another of these methods needs: see [Server.Refresh].
type Locker interface {
	// Lock returns when r is granted, denied or withdrawn; the error is one
	// of locks.Err*. cancel may be nil, which is never. The Locker may keep r.
	Lock(cancel <-chan struct{}, r *locks.Request) (locks.Grant, error)
	// LockNow is Lock for the open lock of a new file, if that need not wait, nor ask
	// another node, nor call Refresh: the kernel has locked the directory of the file
	// meanwhile, and would wait for that. Else it is false, and r is not asked for.
	LockNow(r *locks.Request) (locks.Grant, bool)
	// Unlock gives up what o holds of rg: flock LOCK_UN, fcntl F_UNLCK. It
	// never fails and never waits. It reports whether somebody goes on because
	// of it, here or on another node.
	Unlock(k locks.Key, o locks.OwnerID, rg locks.Range) (handed bool)
	// UnlockOwner gives up all that o holds of k, through whatever handle.
	// It never waits: it comes at close(2).
	UnlockOwner(k locks.Key, o locks.OwnerID)
	// UnlockHandle gives up all that came through h, and ends with
	// locks.ErrInterrupted what still waits through h. It never waits: it
	// comes after the last close(2) of h, or when h gives its open lock up;
	// why is for people.
	UnlockHandle(k locks.Key, h locks.HandleID, why string)
	// Closing says that h was closed, perhaps for the last time, in which case
	// UnlockHandle follows. It never waits.
	Closing(k locks.Key, h locks.HandleID)
	// Test finds a lock that r would wait for: nil when there is none. With
	// r.Mode 0 it finds the first lock of r.Owner itself on r.Range.
	Test(cancel <-chan struct{}, r *locks.Request) (*locks.Conflict, error)
	// Wanted is the mode in which the first of the nodes that wait for a lock
	// of k which conflicts with one that this node holds wants it; 0: there is
	// none. The mount asks about open locks when [Server.Wanted] has told of
	// one, and once a second.
	Wanted(k locks.Key) locks.Mode
	// Share makes an open lock for writing that came through h one for
	// reading, until h asks for one for writing again. It reports false if it
	// cannot.
	Share(k locks.Key, h locks.HandleID, why string) bool
	// Moment is the present one, for Request.Born.
	Moment() locks.Moment
	// Tenure is the tenure that a grant would have now.
	Tenure() locks.Tenure
	// Admit is asked directly before I/O that a lock of tenure t protects.
	// It returns nil when the I/O may start now; also when cancel is closed
	// already, so that a closed channel makes it a question that never waits.
	// It waits while the node is suspended, then returns
	// locks.ErrInterrupted when cancel is closed. It returns locks.ErrLost
	// when t is over.
	Admit(cancel <-chan struct{}, t locks.Tenure) error
}

// lockFor is how a request takes a lock: [Locker.Lock], which may wait for other
// hosts. REQUIRES: the request has changed nothing yet, so that the process which
// takes this one's place can do it anew; see pausing.go. With reserve the handle is
// not one that is open already: if the request is bequeathed it keeps its number.
func (b *base) lockFor(cancel <-chan struct{}, in *fuse.InHeader, r *locks.Request, reserve bool) (g locks.Grant, err error) {
	p := b.pause
	if p.enter(); p.on.Load() && !p.gate() {
		err = locks.ErrBequeathed
	} else {
		g, err = b.locker.Lock(cancel, r)
	}
	switch {
	case err == nil && !p.leave():
		err = locks.ErrBequeathed
	case err == nil:
		b.awaitDropped(cancel, in)
		return g, nil
	case errors.Is(err, locks.ErrBequeathed):
		<-p.succeeded // it is on its way
		p.giveUp()
	default:
		p.giveUp()
		return g, err
	}
	if reserve {
		b.conn.reserve(in.Unique, r.Key, r.Handle)
	}
	return locks.Grant{}, err
}

// testFor is [Locker.Test] for a request that has changed nothing, see lockFor.
func (b *base) testFor(cancel <-chan struct{}, r *locks.Request) (*locks.Conflict, error) {
	p := b.pause
	p.enter()
	if p.on.Load() && !p.gate() {
		p.giveUp()
		return nil, locks.ErrBequeathed
	}
	c, err := b.locker.Test(cancel, r)
	if !p.leave() {
		return nil, locks.ErrBequeathed
	}
	return c, err
}

// lockBehind is [Locker.Lock] for a background task, which the process that takes
// this one's place begins anew.
func (b *base) lockBehind(cancel <-chan struct{}, r *locks.Request) (locks.Grant, error) {
	b.pause.rest()
	g, err := b.locker.Lock(cancel, r)
	if !b.pause.work() {
		return locks.Grant{}, locks.ErrBequeathed
	}
	if err == nil {
		b.awaitDropped(nil, nil)
	}
	return g, err
}

// awaitDropped waits until the kernel has dropped what it may have of files that another
// process was about to make it drop, which is over soon; or until cancel is closed, as the
// program is not going to use what was granted then. in is of the request, or nil.
func (b *base) awaitDropped(cancel <-chan struct{}, in *fuse.InHeader) {
	d := b.redo.dropped
	if d == nil || closed(d) {
		return
	}
	if in != nil {
		b.conn.willWait(in.Unique)
	}
	select {
	case <-d:
	case <-cancel:
	}
}

// Rule says what open(2) means for a file.
type Rule struct {
	// Open: open(2) and truncate(2) take a lock.
	Open bool
	// PerProcess: open locks are between processes. Otherwise they are
	// between nodes, and all processes of a node share them.
	PerProcess bool
	// UntilClose: an open lock ends with the last close(2) or munmap(2), and not
	// before: it does not give way, and a program that locks for itself has it
	// as well. It is for files that programs use as memory in common, by
	// mappings and without locks on all of it: one node has them at a time.
	UntilClose bool
	// Yield is how long an open lock may be idle before it gives way to a
	// node that waits for it; 0: it never does.
	Yield time.Duration
	// YieldShared is the same where one of the two wants to read only, and
	// YieldStream for an open lock that has given way before; they are not
	// longer. 0, and between processes: the open itself is the lock, and Yield holds in
	// all cases, also if nothing has been read or written yet. See yielder.go.
	YieldShared, YieldStream time.Duration
	// Wait bounds every wait for a lock of the file: by open(2), by flock(2)
	// and fcntl(2), and by I/O that takes an open lock again; then it fails
	// with ETIMEDOUT. 0: without limit.
	Wait time.Duration
}

// patience is Wait as locks.Request has it.
func (r *Rule) patience() int64 {
	if r.Wait <= 0 {
		return 0
	}
	return max(1, r.Wait.Milliseconds())
}

// DefaultRule is the rule of files for which nothing else was configured.
var DefaultRule = Rule{Open: true, Yield: 10 * time.Second, YieldShared: time.Second, YieldStream: 50 * time.Millisecond}

// LateWrite describes a change under a lock that the storage carried out, or
// may have carried out, when this node had lost the lock: its process or its
// machine stood still between the check and the system call. Another node may
// have been writing at the same time.
type LateWrite struct {
	// Operation is what it was: "write", "rename", "chmod" …
	Operation string
	Path      string // relative to the root of the shared directory
	File      string // as in locks.Key
	Offset    int64
	Length    int
	Program   locks.Program
}
