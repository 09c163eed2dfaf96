package fusefs

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// retry is what is remembered of an open(2) that was answered with ESTALE,
// until the kernel comes again: the thread is still in that call, so the next
// OPEN or CREATE it makes is the second attempt. There is no third one: the
// program would see ESTALE, so the second attempt takes what it gets.
//
// Where files are replaced by rename(2) all the time, and several hosts wait
// to open them, what it gets could be a file that was replaced again while it
// waited for the lock. Therefore the lock is taken already at the first
// attempt, again and again until the name leads to the file that is locked.
type retry struct {
	h *handle // with the open lock that the second attempt needs; or nil
	// flags are those of open(2). A thread whose second attempt does not come
	// may open the file for something else.
	flags uint32
	at    int64 // on the server's clock
	// truncate: it is of truncate(2), see truncateLater.
	truncate bool
}

func (x *retry) isTruncate() bool { return x != nil && x.truncate }

// passTime is enough for a thread that stood behind a request to go on, when the
// kernel could let it.
const passTime = 20 * time.Millisecond

// letPass holds up the look-up with which a truncate(2) begins anew: else it may
// be faster than those for whose sake it does.
func (r *retries) letPass(in *fuse.InHeader) {
	if r.some.Load() > 0 && r.truncates(in.Pid) {
		r.conn.willWait(in.Unique)
		time.Sleep(passTime)
	}
}

func (r *retries) truncates(tid uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[tid].isTruncate()
}

// endsRetry is called when a look-up has failed: the truncate(2) that began anew
// with it ends so, and what the thread truncates next is another file.
func (r *retries) endsRetry(in *fuse.InHeader) {
	if r.some.Load() > 0 && r.truncates(in.Pid) {
		r.take(in.Pid)
	}
}

// truncateLater ends the wait of a truncate(2) that stands in the way of others.
// The kernel looks its path up again after the first one, and meanwhile they go
// on. again is what is remembered of that. A second time it fails.
func (r *retries) truncateLater(in *fuse.InHeader, again *retry) fuse.Status {
	if again.isTruncate() || in.Pid == 0 { // or it is not known which thread it is
		return fuse.EINTR
	}
	r.abandonRetry(r.put(in.Pid, &retry{truncate: true, at: r.now()}))
	return errStale
}

// retryAge is after how many milliseconds a second attempt does not come any
// more: the path ended elsewhere this time.
const retryAge = 2000

type retries struct {
	*base
	openLocks *openLocks
	finder    *finder

	some atomic.Int32 // how many there are

	mu   sync.Mutex
	byID map[uint32]*retry // by thread
}

func (r *retries) put(tid uint32, x *retry) (old *retry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = make(map[uint32]*retry)
	}
	old = r.byID[tid]
	r.byID[tid] = x
	r.some.Store(int32(len(r.byID)))
	return old
}

// take is the first attempt of which this may be the second, or nil.
func (r *retries) take(tid uint32) *retry {
	if r.some.Load() == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.byID[tid]
	delete(r.byID, tid)
	r.some.Store(int32(len(r.byID)))
	return x
}

// putBack is for a second attempt that is done anew. x may be nil, and has no lock
// any more.
func (r *retries) putBack(tid uint32, x *retry) {
	if x != nil {
		r.put(tid, &retry{flags: x.flags, at: x.at, truncate: x.truncate})
	}
}

// unlock gives up the locks of all. Second attempts take what they get then.
func (r *retries) unlock() {
	r.mu.Lock()
	var hs []*handle
	for _, x := range r.byID {
		if x.h != nil {
			hs = append(hs, x.h)
			x.h = nil
		}
	}
	r.mu.Unlock()
	for _, h := range hs {
		r.openLocks.abandon(h)
	}
}

// old takes those that are not waited for any more.
func (r *retries) old(now int64) (xs []*retry) {
	if r.some.Load() == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for tid, x := range r.byID {
		if now-x.at > retryAge {
			xs = append(xs, x)
			delete(r.byID, tid)
		}
	}
	r.some.Store(int32(len(r.byID)))
	return xs
}

// lockedFor is the handle of n for which the lock is held, or nil. It is for
// another open of these flags.
func (x *retry) lockedFor(n *node, flags uint32) *handle {
	if x == nil || x.h == nil || x.h.n != n || x.flags != flags {
		return nil
	}
	return x.h
}

// abandonRetry gives up a lock that nobody came for.
func (r *retries) abandonRetry(x *retry) {
	if x != nil && x.h != nil {
		r.openLocks.abandon(x.h)
	}
}

// lookAhead prepares the second attempt of an open(2) that found that its name
// has moved on. h is the handle of the first one, which is still attached.
func (r *retries) lookAhead(cancel <-chan struct{}, h *handle, moved []dirName, in *fuse.OpenIn) fuse.Status {
	x := &retry{flags: in.Flags}
	h.failed.Store(true)
	if h.holds.Load() && len(moved) == 1 && in.Flags&unix.O_NONBLOCK == 0 {
		// Nothing is locked twice: what h holds is a file that is gone.
		r.openLocks.giveUp(h)
		next, err := r.lockWhereItLeads(cancel, moved[0], in)
		if err != nil {
			return lockErrno(err, cancel)
		}
		x.h = next
	}
	x.at = r.now()
	r.abandonRetry(r.put(in.Pid, x))
	return fuse.OK
}

// lockWhereItLeads locks the file that a name leads to, until it still does so
// when the lock is granted. The handle is nil when the name leads to no
// regular file, or to one that needs no lock.
func (r *retries) lockWhereItLeads(cancel <-chan struct{}, l dirName, in *fuse.OpenIn) (*handle, error) {
	if len(r.tree.pinned([]*node{l.dir}, nil)) == 0 {
		return nil, nil
	}
	defer r.tree.unpin(l.dir)
	if r.finder.anchorAgain(&in.InHeader, l.dir) != nil {
		return nil, nil
	}
	for {
		n, _, err := r.finder.find(&in.InHeader, l.dir, l.name)
		if err != nil {
			return nil, nil // the second attempt will find out
		}
		h := r.openLocks.newHandle(n, in.Flags, in.Flags&unix.O_TRUNC != 0, &in.InHeader)
		if !n.isRegular() || h.open.state != openWaiting {
			r.tree.forget(n.id, 1)
			return nil, nil
		}
		r.openLocks.attach(h, openWaiting) // which pins n
		r.tree.forget(n.id, 1)             // the kernel was not told
		if err := r.openLocks.lockOpened(cancel, h, false, &in.InHeader); err != nil {
			r.openLocks.detach(h)
			if err == locks.ErrInterrupted || closed(cancel) || errors.Is(err, locks.ErrBequeathed) {
				return nil, err
			}
			return nil, nil // the second attempt will get the same error
		}
		var st unix.Stat_t
		err = unix.Fstatat(l.dir.fd, l.name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || keyOf(&st) == n.key {
			return h, nil
		}
		r.openLocks.abandon(h)
		r.tree.unname(n, l)
	}
}
