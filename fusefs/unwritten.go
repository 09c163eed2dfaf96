package fusefs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// What a program has written may be on the storage only when the client of that
// has written it out; and this the mount makes it do at times of which the
// program knows nothing: when a lock goes to another host, and after the last
// close. If it fails the program must be told all the same. So the error is one
// of the file, as errseq_t is in Linux: each open file that can write is told
// once, by the next write(2), fsync(2) or close(2) on it. One that is opened
// afterwards is told if nobody has been.

// unwritten is what became of the data of a file. The zero value is ready.
type unwritten struct {
	count atomic.Uint64 // of failures; it changes under mu
	// pages counts those of mapped pages, of which the kernel itself tells.
	pages atomic.Uint64

	mu   sync.Mutex
	err  error // the latest
	told bool  // somebody was
	owed bool  // who gets a lock next was not
}

func (u *unwritten) failed(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err, u.told, u.owed = err, false, true
	u.count.Add(1)
}

// handedOver is the error since the last lock was handed over that may protect
// the file, or nil. Whoever gets the lock then has to know, also if it was told
// to the programs here before.
func (u *unwritten) handedOver() error {
	if u.count.Load() == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.owed {
		return nil
	}
	u.owed = false
	return u.err
}

// opened is the count from which on a file that is opened now is told.
func (u *unwritten) opened() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := u.count.Load(); n == 0 || u.told {
		return n
	}
	return u.count.Load() - 1
}

// tell is the error that h was not told yet, or nil. With keep it is told again
// the next time.
func (h *handle) tell(keep bool) error {
	u := &h.n.unwritten
	if u.count.Load() == h.knows.Load() || !h.write {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.count.Load()
	if n == h.knows.Load() {
		return nil // another call was faster
	}
	if !keep {
		u.told = true
		h.knows.Store(n)
	}
	return u.err
}

// isGone reports whether err says that a file was removed from the storage by
// another host. What was written to it is in nobody's way.
func isGone(err error) bool { return err == unix.ENOENT || err == unix.ESTALE }
