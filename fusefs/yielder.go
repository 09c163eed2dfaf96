package fusefs

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// An open lock is for a program that opens a file, works with it and closes it:
// for a section. Programs that keep a file open and only look on must not cost
// others anything. So an open lock gives way to a node that wants it:
//
//   - at once, if nothing was read or written through the handle;
//   - when it was not used for a second ([Rule.YieldShared]), if one of the two
//     wants to read only. A writer then becomes a reader (openShared): others
//     can read what it has written, but no other one writes;
//   - when it was not used for [Rule.Yield], between two writers.
//
// The next read or write takes it again. A handle that has given way while it
// was in use is a stream, as of tail(1) or of a program that writes a log: from
// then on it gives way when it was not used for [Rule.YieldStream].
//
// Who has made or truncated a file is going to write it. What others would find
// until then is neither what was there nor what will be; so that counts as use,
// and as a section between writers.

// yields are when an open lock gives way. All are 0 if it never does, and those
// but the first if the open itself is the lock.
type yields struct{ after, shared, stream int64 } // in ms

func (r *Rule) yields() yields {
	y := yields{after: r.Yield.Milliseconds(), shared: r.YieldShared.Milliseconds(), stream: r.YieldStream.Milliseconds()}
	switch {
	case r.Yield <= 0 || r.UntilClose:
		return yields{}
	case r.YieldShared <= 0 || r.PerProcess:
		return yields{after: max(y.after, 1)}
	}
	y.after = max(y.after, 1)
	y.shared = min(max(y.shared, 1), y.after)
	if y.stream = min(y.stream, y.shared); r.YieldStream > 0 {
		y.stream = max(y.stream, 1)
	}
	return y
}

// yielder lets open locks give way.
type yielder struct {
	*base
	pages     *pageCache
	attrs     *attrCache
	openLocks *openLocks
	wishes    *wishes
}

// action is what to do with an open lock that another node wants.
type action uint8

const (
	stays      action = iota // for now
	dropsPages               // to find out whether the kernel's pages serve reads
	sharesIt
	leavesIt
)

// idleness is what decides about an open lock that is wanted. Times are on the
// server's clock.
type idleness struct {
	yields
	mode                     locks.Mode // it is for
	isShared, stream, shared bool       // see openLock
	unused                   bool       // nothing was read or written through it
	fresh                    bool       // see handle
	used                     int64      // when it was used last
	unseen                   int64      // until when it may have been used without a request; 0: it was not
	dropped                  int64      // since when uses are seen; 0: never
}

// decide tells what to do about a lock that is wanted for want, and when to ask
// again if it stays; 0: not before something happens.
func (i *idleness) decide(want locks.Mode, now int64) (a action, at int64) {
	reader := i.mode == locks.Read || want == locks.Read
	early := i.yields.shared > 0 && !i.fresh
	limit := i.after
	switch {
	case i.after == 0, want == locks.Read && (i.mode == locks.Read || i.isShared):
		return stays, 0
	case early && i.unused:
		return leavesIt, 0
	case early && i.yields.stream > 0 && (i.stream || i.shared && reader):
		limit = i.yields.stream
	case early && reader:
		limit = i.yields.shared
	}
	// A stream begins anew with each use; what a page served a moment ago is
	// no reason to wait.
	if !i.stream && i.unseen > 0 && now < i.unseen+limit && (i.dropped == 0 || now >= i.dropped+limit) {
		return dropsPages, 0
	}
	if end := max(i.used, i.dropped) + limit; now < end {
		return stays, end
	}
	if want == locks.Read && i.yields.shared > 0 && !i.stream {
		return sharesIt, 0
	}
	return leavesIt, 0
}

// idlenessOf is what is known of h. REQUIRES: h.mu held.
func (y *yielder) idlenessOf(h *handle) idleness {
	o, n := &h.open, h.n
	i := idleness{
		yields: o.yields, mode: o.req.Mode, isShared: o.state == openShared, stream: o.stream, shared: o.shared,
		fresh: h.fresh.Load(), used: h.used.Load(), dropped: h.dropped.Load(),
	}
	readable := h.mixed || !h.write
	i.unused = !h.touched.Load() && (!readable || h.filled == n.filled.Load())
	if readable && n.cached.Load() {
		// read(2) asks for the attributes, if they are not valid any more.
		i.unseen = n.toldAt.Load() + (y.attrTTL + tickSlack).Milliseconds()
	}
	return i
}

// wishes are the open locks that other nodes want.
type wishes struct {
	mu   sync.Mutex
	keys map[locks.Key]struct{}
	some chan struct{} // has an element when there are new ones
}

func newWishes() *wishes {
	return &wishes{keys: make(map[locks.Key]struct{}), some: make(chan struct{}, 1)}
}

func (w *wishes) add(k locks.Key) {
	w.mu.Lock()
	w.keys[k] = struct{}{}
	w.mu.Unlock()
	select {
	case w.some <- struct{}{}:
	default:
	}
}

func (w *wishes) take(into map[locks.Key]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(into, w.keys)
	clear(w.keys)
}

// Wanted tells that another node wants an open lock, or did a moment ago: what
// [Locker.Wanted] says is not 0. It returns at once, and calls no method of
// Locker.
func (s *Server) Wanted(k locks.Key) {
	if k == leaseKey {
		s.fs.leases.wanted()
		return
	}
	s.fs.yielder.wishes.add(k)
}

const (
	// sweepInterval is how often all open locks are looked at, in case that
	// nobody has told of a wish.
	sweepInterval = time.Second
	// busyTime is when a handle is looked at again that is in use.
	busyTime = 10 // ms
)

// keepYielding lets open locks give way that other nodes want, and calls also
// every sweepInterval.
func (y *yielder) keepYielding(ctx context.Context, also func()) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	wanted := make(map[locks.Key]struct{})
	for {
		swept := false
		y.pause.rest()
		select {
		case <-ctx.Done():
		case <-y.wishes.some:
		case <-timer.C:
		case <-tick.C:
			swept = true
		}
		if !y.pause.work() || ctx.Err() != nil {
			return
		}
		if swept {
			y.giveWay()
			also()
			continue
		}
		y.wishes.take(wanted)
		next := int64(math.MaxInt64)
		for k := range wanted {
			at := y.giveWayTo(k)
			if at == 0 {
				delete(wanted, k) // if that changes a wish or the next sweep tells
				continue
			}
			next = min(next, at)
		}
		timer.Reset(time.Duration(min(max(next-y.now(), 1), sweepInterval.Milliseconds())) * time.Millisecond)
	}
}

// giveWay looks at all handles.
func (y *yielder) giveWay() {
	keys := make(map[locks.Key]struct{})
	for _, h := range y.handles.all() {
		if h.holds.Load() && h.mu.TryRLock() {
			if h.open.yields.after > 0 {
				keys[h.open.req.Key] = struct{}{}
			}
			h.mu.RUnlock()
		}
	}
	for k := range keys {
		if y.locker.Wanted(k) != 0 {
			y.wishes.add(k)
		}
	}
}

// giveWayTo lets go of the open locks of k that are idle and wanted. It tells
// when to ask again; 0: when they are wanted again.
func (y *yielder) giveWayTo(k locks.Key) (at int64) {
	want := y.locker.Wanted(k)
	if want == 0 {
		return 0
	}
	ns := y.tree.ofFile(k.File)
	defer y.tree.unpinAll(ns)
	for _, n := range ns {
		if next := y.giveWayOf(n, k, want); next > 0 && (at == 0 || next < at) {
			at = next
		}
	}
	return at
}

// giveWayOf is giveWayTo for one file.
func (y *yielder) giveWayOf(n *node, k locks.Key, want locks.Mode) (at int64) {
	now := y.now()
	again := func(t int64) {
		if at == 0 || t < at {
			at = t
		}
	}
	if y.isRereading(n) || y.redo.keeps() {
		return now + busyTime
	}
	leave, share := newLeaving(openIdle), newLeaving(openShared)
	var look []*handle
	for _, h := range n.openHandles() {
		if !h.holds.Load() {
			continue
		}
		if y.handles.get(h.id) != h || !h.mu.TryLock() {
			again(now + busyTime) // it is being opened; or in use
			continue
		}
		if s := h.open.state; s != openHeld && s != openShared || h.open.req.Key != k || h.released {
			h.mu.Unlock()
			continue
		}
		if y.locker.Admit(closedChan, h.open.tenure) != nil {
			again(now + busyTime) // it may be lost, as after a pause of this process
			h.mu.Unlock()
			continue
		}
		i := y.idlenessOf(h)
		switch a, next := i.decide(want, now); a {
		case stays:
			if next > 0 {
				again(next)
			}
		case dropsPages:
			look = append(look, h)
		case sharesIt:
			y.leaves(h, share)
		case leavesIt:
			h.open.stream = h.open.stream || !i.unused
			h.fresh.Store(false)
			y.leaves(h, leave)
		}
		h.mu.Unlock()
	}
	if len(look) > 0 {
		again(now + busyTime)
		y.dropToSee(n, look)
	}
	y.stats.Yields.Add(int64(len(leave.handles) + len(share.handles)))
	y.letGo(n, leave, "idle, and another node waits")
	y.letGo(n, share, "idle, and another node waits to read")
	return at
}

// dropToSee makes the next reads of a file visible, that pages would serve:
// whether it is in use is seen when it was not used for another while.
func (y *yielder) dropToSee(n *node, hs []*handle) {
	if n.looking.Swap(true) {
		return // it is under way
	}
	y.tree.pin(n)
	y.background(func() {
		y.pages.dropLogged(n)
		for _, h := range hs {
			h.dropped.Store(y.now())
		}
		n.looking.Store(false)
		y.tree.unpin(n)
	})
}

// leaving are open locks of one file that are given up, or made ones for reading
// (openShared), until the next I/O through their handles.
type leaving struct {
	acquisition // what I/O waits for until then
	to          openState
	handles     []leavingHandle
}

type leavingHandle struct {
	*handle
	was openState
}

func newLeaving(to openState) *leaving {
	return &leaving{acquisition: acquisition{done: make(chan struct{})}, to: to}
}

// leaves has I/O through h wait, until letGo is done. REQUIRES: h.mu held.
func (y *yielder) leaves(h *handle, l *leaving) {
	l.handles = append(l.handles, leavingHandle{h, h.open.state})
	h.open.wait = &l.acquisition
	y.openLocks.setState(h, openWaiting)
}

// letGo gives up what leaves was told of, in the background: then l.done is
// closed. What is cached of the file goes with the locks.
func (y *yielder) letGo(n *node, l *leaving, why string) {
	if len(l.handles) == 0 {
		close(l.done)
		return
	}
	y.tree.pin(n)
	y.background(func() {
		defer y.tree.unpin(n)
		// What is mapped is not I/O that could be seen. Without pages the next
		// access has to ask for one, and waits as every read does.
		if n.cached.Load() {
			y.pages.dropLogged(n) // before the lock leaves it is tried again, see flushNode
		} else {
			y.attrs.dropAttr(n)
		}
		for _, h := range l.handles {
			y.letGoNow(h, l, why)
		}
		close(l.done)
	})
}

// letGoNow gives up the open lock of h. It stays if this node is not sure of it any more, since
// others may have written after the last use: whoever uses it next waits, or is told.
func (y *yielder) letGoNow(h leavingHandle, l *leaving, why string) {
	h.mu.Lock()
	mine := h.open.wait == &l.acquisition
	key, tenure := h.open.req.Key, h.open.tenure
	h.mu.Unlock()
	if !mine {
		return // closed, or given up for good
	}
	to := l.to
	if to == openShared && !y.locker.Share(key, h.lockID(), why) {
		to = openIdle
		if y.locker.Tenure() != tenure {
			y.fenced(h.handle) // others may write from now on
		}
	}
	if to == openIdle {
		switch err := y.locker.Admit(closedChan, tenure); {
		case err == nil:
			y.locker.UnlockHandle(key, h.lockID(), why)
		case errors.Is(err, locks.ErrLost), h.lost.Load():
			y.fenced(h.handle)
			y.locker.UnlockHandle(key, h.lockID(), why)
		default:
			to = h.was
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open.wait == &l.acquisition {
		h.open.wait = nil
		h.open.shared = h.open.shared || to == openShared
		y.openLocks.setState(h.handle, to)
	}
}

// OpenLock is how an open lock is used.
type OpenLock struct {
	Used   bool // something was read or written through its handle
	Stream bool // it has given way while it was in use, and does so soon again
	Shared bool // it lets other nodes read
	Idle   time.Duration
}

// OpenLock tells of the open lock of a handle. ok is false if it has none.
func (s *Server) OpenLock(id locks.HandleID) (l OpenLock, ok bool) {
	h := s.fs.handles.get(uint64(id))
	if h == nil || !h.holds.Load() {
		return OpenLock{}, false
	}
	return s.fs.yielder.openLockOf(h), true
}

func (y *yielder) openLockOf(h *handle) OpenLock {
	l := OpenLock{Used: h.touched.Load()}
	if !h.mu.TryRLock() {
		return l // its state changes just now
	}
	defer h.mu.RUnlock()
	l.Stream, l.Shared = h.open.stream, h.open.state == openShared
	l.Idle = time.Duration(y.now()-h.used.Load()) * time.Millisecond
	return l
}
