package fusefs

import (
	"bytes"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel ends a read(2) at the size that it knows, also when it has asked for that
// and is answered: it ignores the answer if it was notified of something about the
// file since it asked, and then goes on with the old size. A read that waits for a lock
// has asked before the lock comes, and the notifications that drop what was cached are
// sent when it comes; or it has asked before the lock went away, and waits with a page
// locked. Then a number that was "100", and is "1002" now, would be read as "100".
//
// So when a lock has come, and the file may be longer than the kernel believes, it is
// told so in a way that it does not ignore: as if a byte were stored in its cache,
// the last one of the file. The kernel takes over the size first, and then fails to
// fetch the byte, so that nothing becomes of that.
//
// A file that is shorter than the kernel believes needs nothing of the kind, see shorter.go.

// sizeBounds are between what sizes a file is, as the kernel believes.
type sizeBounds struct {
	// least is the shortest of those that it was told since it was told one in that
	// way; most is the longest of all since a program of this host has begun to truncate it.
	least, most atomic.Int64
	// late is a size that the kernel was not told yet, since a READ is parked for
	// which it would have waited; 0: none. Who is answered next tells it.
	late atomic.Int64
	mu   sync.Mutex // held while it is told
}

// init is for a file of which the kernel knows nothing.
func (b *sizeBounds) init() { b.least.Store(math.MaxInt64) }

// add notes that the kernel may come to believe a size.
func (b *sizeBounds) add(size int64) {
	for old := b.least.Load(); size < old && !b.least.CompareAndSwap(old, size); {
		old = b.least.Load()
	}
	b.raise(size)
}

// raise is add for a program of this host that makes the file so long, if it is shorter.
func (b *sizeBounds) raise(size int64) {
	for old := b.most.Load(); size > old && !b.most.CompareAndSwap(old, size); {
		old = b.most.Load()
	}
}

// grow sees to it that the kernel believes n to be as long as it is, at least, and
// reports whether it had to be told. If a request is parked that keeps the last page
// locked that is left to growLate.
func (c *attrCache) grow(n *node) bool {
	b := &n.bounds
	b.mu.Lock()
	defer b.mu.Unlock()
	x, is := c.grown(n)
	if is {
		c.tellSizes([]longer{x})
	}
	return is
}

// growAll is grow of each of ns, at less cost, and returns those of which the kernel had to
// be told. REQUIRES: no lock of them is used before it returns.
func (c *attrCache) growAll(ns []*node) (told []*node) {
	var list []longer
	for _, n := range ns {
		n.bounds.mu.Lock()
		if x, is := c.grown(n); is {
			list, told = append(list, x), append(told, n)
		}
		n.bounds.mu.Unlock()
	}
	c.tellSizes(list)
	return told
}

// longer is a file that is longer than the kernel may believe.
type longer struct {
	n    *node
	size int64
}

// grown reports whether n is that, which the kernel is going to be told.
// REQUIRES: n.bounds.mu held.
func (c *attrCache) grown(n *node) (x longer, is bool) {
	fd := c.tree.anchorOf(n)
	if !n.isRegular() || fd < 0 {
		return x, false
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return x, false
	}
	b := &n.bounds
	switch {
	case st.Size <= b.least.Load():
		return x, false
	case n.isParkedAt(st.Size - 1):
		b.late.Store(st.Size)
		return x, false
	}
	return c.growsTo(n, st.Size), true
}

// growLate is called before a program is answered that goes on with the size, and
// before what is in the file is read for it; fd is of n.
func (c *attrCache) growLate(n *node, fd int) {
	b := &n.bounds
	if b.late.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var st unix.Stat_t
	size := b.late.Swap(0)
	if size > b.least.Load() && unix.Fstat(fd, &st) == nil && st.Size >= size {
		c.tellSizes([]longer{c.growsTo(n, size)})
	}
}

// growsTo notes that the kernel is going to be told that n is so long.
// REQUIRES: n.bounds.mu held.
func (c *attrCache) growsTo(n *node, size int64) longer {
	// Before: an answer with a smaller size that is made from now on may be taken over.
	n.bounds.least.Store(size)
	n.mayReach(size)
	n.notePages()
	n.cached.Store(true) // the kernel makes the page, without content
	c.unprotected.noteKnown(n)
	c.stats.Grown.Add(1)
	n.notified.Add(1)
	return longer{n, size}
}

// tellSizes tells the kernel how long files are, and returns when it has taken that over.
// It may go on to wait for a page, which can be locked for a READ.
func (c *attrCache) tellSizes(list []longer) {
	for rest := list; len(rest) > 0; {
		these := rest // the last call may go on
		rest = rest[untilItWaits(c.base, len(these), func(i int) { c.dev.grow(these[i].n.id, these[i].size) }):]
	}
	for _, x := range list {
		x.n.mayReach(x.size) // a truncation may have been answered meanwhile
	}
}

// blindTime is how long untilItWaits waits where it cannot see what its thread does: the
// kernel takes over a size, and drops pages that it need not wait for, first of all.
const blindTime = 10 * time.Millisecond

// untilItWaits calls tell, which notifies the kernel, for 0 and so on up to n by one thread, and
// returns when the last call has returned, or one waits in the kernel. It tells how many were begun.
func untilItWaits(b *base, n int, tell func(i int)) int {
	const stop = math.MaxInt64
	done := make(chan struct{})
	var begun atomic.Int64 // how many; stop: no more
	var thread atomic.Pointer[os.File]
	var blind atomic.Bool
	b.background(func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if stat, err := os.Open("/proc/thread-self/stat"); err == nil {
			defer stat.Close()
			thread.Store(stat)
		} else {
			blind.Store(true)
		}
		for i := 0; i < n && begun.CompareAndSwap(int64(i), int64(i)+1); i++ {
			tell(i)
		}
	})
	t := time.NewTicker(settleEvery)
	defer t.Stop()
	at, since := int64(0), time.Now()
	for {
		select {
		case <-done:
			return n
		case <-t.C:
			if now := begun.Load(); now != at {
				at, since = now, time.Now()
			}
			// Where that cannot be seen (no descriptor is left) the time has to do:
			// who is answered next may be whom the kernel waits for.
			stat := thread.Load()
			waits := stat != nil && waitsInKernel(stat) || blind.Load() && time.Since(since) > blindTime
			if waits && at > 0 && begun.CompareAndSwap(at, stop) {
				return int(at)
			}
		}
	}
}

// waitsInKernel reports whether the thread of a /proc/TID/stat sleeps such that
// nothing interrupts it.
func waitsInKernel(stat *os.File) bool {
	var b [128]byte
	n, _ := stat.ReadAt(b[:], 0)
	_, state, _ := bytes.Cut(b[:n], []byte(") "))
	return bytes.HasPrefix(state, []byte("D"))
}
