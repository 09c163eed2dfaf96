package fusefs

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/dmxfs/dmxfs/locks"
)

// fakeLocker is a lock engine of one node. Another node exists only in its
// table: what a test holds there, see hold.
type fakeLocker struct {
	mu      sync.Mutex
	changed chan struct{} // closed, and made anew, at every change
	held    map[locks.Key][]fakeLock
	wanted  map[locks.Key]map[int]locks.Mode // by the other node
	// stale: the other node has had a lock to write since this node's last
	// grant.
	stale     map[locks.Key]bool
	ends      map[locks.HandleID]int // how often UnlockHandle was called
	token     locks.Token
	tenure    locks.Tenure
	suspended bool
	atOnce    bool // LockNow grants what it can
	refused   int  // how often Admit has said that a tenure is over
	over      bool // see willWait
	lastID    int
	calls     []string
	file      string // where the state is kept; empty: nowhere

	// coherence is the mount, or nil.
	coherence interface {
		Flush(locks.Key) error
		Refresh(locks.Key) error
		Wanted(locks.Key)
	}
}

type fakeLock struct {
	owner  locks.OwnerID
	handle locks.HandleID
	mode   locks.Mode
	rg     locks.Range
	pid    int
	remote int // number of the test's lock on the other node; 0: of this node
}

const remoteNode = locks.NodeID("other")

func newFakeLocker() *fakeLocker {
	return &fakeLocker{
		changed: make(chan struct{}),
		held:    make(map[locks.Key][]fakeLock),
		wanted:  make(map[locks.Key]map[int]locks.Mode),
		stale:   make(map[locks.Key]bool),
		ends:    make(map[locks.HandleID]int),
		tenure:  1,
	}
}

// REQUIRES: mu held.
func (l *fakeLocker) note(format string, args ...any) {
	l.calls = append(l.calls, fmt.Sprintf(format, args...))
}

// REQUIRES: mu held.
func (l *fakeLocker) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// conflict finds a lock in the way. REQUIRES: mu held.
func (l *fakeLocker) conflict(k locks.Key, owner locks.OwnerID, remote bool, m locks.Mode, rg locks.Range) *fakeLock {
	for i := range l.held[k] {
		x := &l.held[k][i]
		if (x.remote > 0) == remote && x.owner == owner {
			continue
		}
		if x.rg.Overlaps(rg) && (m == locks.Write || x.mode == locks.Write) {
			return x
		}
	}
	return nil
}

// take puts a lock into the table, in place of what the owner had there.
// REQUIRES: mu held.
func (l *fakeLocker) take(k locks.Key, n fakeLock) {
	if k.Class != locks.Open {
		l.clear(k, n.rg, func(x fakeLock) bool { return x.owner == n.owner && x.remote == n.remote })
	} else if n.remote == 0 {
		l.clear(k, n.rg, func(x fakeLock) bool { return x.handle == n.handle && x.remote == 0 })
	}
	l.held[k] = append(l.held[k], n)
}

// clear takes rg from the locks that match. REQUIRES: mu held.
func (l *fakeLocker) clear(k locks.Key, rg locks.Range, match func(fakeLock) bool) {
	var kept []fakeLock
	for _, x := range l.held[k] {
		if !match(x) {
			kept = append(kept, x)
			continue
		}
		for _, r := range locks.RangesOf(x.rg).Sub(rg) {
			y := x
			y.rg = r
			kept = append(kept, y)
		}
	}
	l.held[k] = kept
	l.wake()
}

func (l *fakeLocker) Lock(cancel <-chan struct{}, r *locks.Request) (locks.Grant, error) {
	l.mu.Lock()
	born := ""
	if r.Born != 0 {
		born = " born"
	}
	l.note("lock %v owner=%s h=%d %v %v try=%v path=%s%s", r.Key, l.ownerName(r), r.Handle, r.Mode, r.Range, r.Try, r.Path, born)
	withdrawn, ends := false, l.ends[r.Handle]
	for {
		if c := l.conflict(r.Key, r.Owner, false, r.Mode, r.Range); c == nil && !l.suspended && !l.over {
			break
		} else if l.over {
			l.mu.Unlock()
			return locks.Grant{}, fmt.Errorf("fake: %w", locks.ErrBequeathed)
		} else if r.Try {
			l.mu.Unlock()
			return locks.Grant{}, locks.ErrWouldBlock
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-cancel:
			withdrawn = true
		}
		l.mu.Lock()
		if withdrawn || ends != l.ends[r.Handle] {
			l.note("withdrawn %v h=%d", r.Key, r.Handle)
			l.mu.Unlock()
			return locks.Grant{}, locks.ErrInterrupted
		}
	}
	stale := l.stale[r.Key]
	l.stale[r.Key] = false
	g := l.grant(r)
	l.mu.Unlock()
	if stale && l.coherence != nil {
		if err := l.coherence.Refresh(r.Key); err != nil {
			return locks.Grant{}, err
		}
	}
	return g, nil
}

// grant gives r what it asks for. REQUIRES: mu held.
func (l *fakeLocker) grant(r *locks.Request) locks.Grant {
	l.token++
	l.take(r.Key, fakeLock{owner: r.Owner, handle: r.Handle, mode: r.Mode, rg: r.Range, pid: r.Program.PID})
	l.save()
	return locks.Grant{Token: l.token, Tenure: l.tenure}
}

func (l *fakeLocker) LockNow(r *locks.Request) (locks.Grant, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.atOnce || r.Born == 0 || l.suspended || l.over || l.conflict(r.Key, r.Owner, false, r.Mode, r.Range) != nil {
		return locks.Grant{}, false
	}
	l.note("locknow %v owner=%s h=%d %v path=%s", r.Key, l.ownerName(r), r.Handle, r.Mode, r.Path)
	return l.grant(r), true
}

// ownerName hides numbers that the kernel makes up.
func (l *fakeLocker) ownerName(r *locks.Request) string {
	if r.Key.Class == locks.Posix {
		return "?"
	}
	return fmt.Sprint(r.Owner)
}

func (l *fakeLocker) Unlock(k locks.Key, o locks.OwnerID, rg locks.Range) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("unlock %v %v", k, rg)
	l.clear(k, rg, func(x fakeLock) bool { return x.owner == o && x.remote == 0 })
	l.save()
	return true
}

func (l *fakeLocker) UnlockOwner(k locks.Key, o locks.OwnerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("unlockowner %v", k)
	l.clear(k, locks.Whole, func(x fakeLock) bool { return x.owner == o && x.remote == 0 })
	l.save()
}

func (l *fakeLocker) Moment() locks.Moment { return 1 }

func (l *fakeLocker) Closing(k locks.Key, _ locks.HandleID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("closing %v", k.Class)
}

func (l *fakeLocker) UnlockHandle(k locks.Key, h locks.HandleID, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("unlockhandle %v h=%d", k, h)
	l.ends[h]++
	l.clear(k, locks.Whole, func(x fakeLock) bool { return x.handle == h && x.remote == 0 })
	l.save()
}

func (l *fakeLocker) Test(cancel <-chan struct{}, r *locks.Request) (*locks.Conflict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("test %v %v %v", r.Key, r.Mode, r.Range)
	c := l.conflict(r.Key, r.Owner, false, r.Mode, r.Range)
	if r.Mode == 0 {
		i := slices.IndexFunc(l.held[r.Key], func(x fakeLock) bool {
			return x.owner == r.Owner && x.remote == 0 && x.rg.Overlaps(r.Range)
		})
		if c = nil; i >= 0 {
			c = &l.held[r.Key][i]
		}
	}
	if c == nil {
		return nil, nil
	}
	x := &locks.Conflict{Mode: c.mode, Range: c.rg, PID: c.pid}
	if c.remote > 0 {
		x.Node, x.PID = remoteNode, 12345
	}
	return x, nil
}

func (l *fakeLocker) Wanted(k locks.Key) locks.Mode {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(l.wanted[k])) {
		if m := l.wanted[k][id]; l.conflict(k, locks.OwnerID(id), true, m, locks.Whole) != nil {
			return m
		}
	}
	return 0
}

func (l *fakeLocker) Share(k locks.Key, h locks.HandleID, why string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.held[k] {
		if x := &l.held[k][i]; x.handle == h && x.remote == 0 {
			x.mode = locks.Read
			l.save()
			l.note("share %v h=%d", k, h)
			l.wake()
			return true
		}
	}
	return false
}

func (l *fakeLocker) Tenure() locks.Tenure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tenure
}

func (l *fakeLocker) Admit(cancel <-chan struct{}, t locks.Tenure) error {
	l.mu.Lock()
	for {
		switch {
		case t != l.tenure:
			l.refused++
			l.mu.Unlock()
			return locks.ErrLost
		case !l.suspended:
			l.mu.Unlock()
			return nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-cancel:
			return locks.ErrInterrupted
		}
		l.mu.Lock()
	}
}

// hold waits for a lock of the other node and returns its number. As the
// engine does, it has local programs' writing flushed before it gets the lock.
func (l *fakeLocker) hold(k locks.Key, m locks.Mode, rg locks.Range, cancel <-chan struct{}) (int, error) {
	l.mu.Lock()
	l.lastID++
	id := l.lastID
	if l.wanted[k] == nil {
		l.wanted[k] = make(map[int]locks.Mode)
	}
	l.wanted[k][id] = m
	l.wake()
	if l.coherence != nil && k.Class == locks.Open {
		l.coherence.Wanted(k)
	}
	for l.conflict(k, locks.OwnerID(id), true, m, rg) != nil {
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-cancel:
			l.mu.Lock()
			delete(l.wanted[k], id)
			l.mu.Unlock()
			return 0, locks.ErrInterrupted
		}
		l.mu.Lock()
	}
	delete(l.wanted[k], id)
	l.take(k, fakeLock{owner: locks.OwnerID(id), mode: m, rg: rg, remote: id})
	if m == locks.Write {
		l.stale[k] = true
	}
	l.save()
	l.note("remote %v %v", k, m)
	l.mu.Unlock()
	if l.coherence != nil {
		return id, l.coherence.Flush(k)
	}
	return id, nil
}

// drop gives up a lock of the other node.
func (l *fakeLocker) drop(id int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.held {
		l.clear(k, locks.Whole, func(x fakeLock) bool { return x.remote == id })
	}
	l.save()
}

// holders counts this node's locks of a class on a file.
func (l *fakeLocker) holders(k locks.Key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, x := range l.held[k] {
		if x.remote == 0 {
			n++
		}
	}
	return n
}

func (l *fakeLocker) suspend(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspended = yes
	l.wake()
}

// expel begins a new tenure; the locks of this node are gone.
func (l *fakeLocker) expel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tenure++
	l.suspended = false
	for k := range l.held {
		l.clear(k, locks.Whole, func(x fakeLock) bool { return x.remote == 0 })
	}
	l.save()
	l.wake()
}

// takeCalls is what was called since the last time.
func (l *fakeLocker) takeCalls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.calls
	l.calls = nil
	return c
}
