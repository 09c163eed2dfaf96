package fusefs

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// The kernel puts the data of a WRITE into the pages that it has before it sends the
// request, and lets others use those meanwhile. If they are dropped then, for a lock that
// comes or behind a process that was killed, and are read again before the WRITE is done,
// they have what was there before, and zeros where the file ended. Where the WRITE makes
// the file longer its answer makes the zeros seen: read(2) looks how long the file is when
// it has the page. Later the time of the change has the kernel read the page once more, if
// the storage has times that tell.
//
// So a READ waits for the WRITEs of its pages that are under way: it can only be for pages
// that were dropped since. One that cannot wait, as the WRITE waits itself for another
// host, has passed it: then the kernel drops the pages once more, before the WRITE is
// answered.
//
// A WRITE is under way as soon as this process has read it. What it has put into pages before
// that, and was dropped and read at once, in the moment in which its program did not get to
// send it, is left to the times.

// writes are the WRITEs to a file that are under way, but for those of mapped pages, for which
// the kernel itself has READs wait.
type writes struct {
	some  atomic.Int32 // that are under way
	begun atomic.Uint64

	mu   sync.Mutex
	all  []*writeUnderway
	last [lastWrites]pageRange // that have begun, by their numbers
}

// lastWrites are more than begin while a READ is served, as the kernel makes one after the other,
// but for those with O_DIRECT.
const lastWrites = 4

// pageRange are the bytes of some pages.
type pageRange struct{ off, end int64 }

func (r pageRange) meets(o pageRange) bool { return r.off < o.end && o.off < r.end }

// writeUnderway is one of them. Its fields are guarded by writes.mu.
type writeUnderway struct {
	pageRange
	request uint64
	parked  bool          // it waits for another host
	passed  bool          // its pages may have been read before it is done
	stirs   chan struct{} // closed when it parks, or not any more, or is done; nil: nobody waits
}

// orderTries is how often a READ is made again since a WRITE of its pages has come meanwhile: more than
// once only with O_DIRECT.
const orderTries = 3

// writesTime is how long a READ waits for a WRITE at most, which may have to wait for what the
// kernel cannot drop before the READ is answered.
const writesTime = time.Second

func pagesOf(off uint64, size uint32) pageRange {
	return pageRange{int64(off &^ (pageSize - 1)), int64((off + uint64(max(size, 1)) + pageSize - 1) &^ (pageSize - 1))}
}

// begin is called when the WRITE in is read. passed: it was read by another process before.
func (w *writes) begin(in *fuse.WriteIn, passed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.all {
		if x.request == in.Unique {
			return
		}
	}
	x := &writeUnderway{pageRange: pagesOf(in.Offset, in.Size), request: in.Unique, passed: passed}
	w.all = append(w.all, x)
	w.some.Add(1)
	w.last[w.begun.Add(1)%lastWrites] = x.pageRange
}

// over is called when a WRITE has done to the storage what it does.
func (w *writes) over(request uint64) (x writeUnderway) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.all, func(x *writeUnderway) bool { return x.request == request })
	if i < 0 {
		return x
	}
	x = *w.all[i]
	w.all = slices.Delete(w.all, i, i+1)
	w.some.Add(-1)
	changed(&x.stirs)
	return x
}

// parks notes whether a WRITE waits for another host.
func (w *writes) parks(request uint64, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.all {
		if x.request == request {
			x.parked = yes
			changed(&x.stirs)
		}
	}
}

// of is closed when a WRITE of these pages, which a READ has to wait for, may not have to be waited for
// any more; nil: there is none. With pass the READ waits for none.
func (w *writes) of(r pageRange, pass bool) (stirs <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.all {
		switch {
		case !x.meets(r):
		case x.parked || pass:
			x.passed = true
		default:
			if x.stirs == nil {
				x.stirs = make(chan struct{})
			}
			return x.stirs
		}
	}
	return nil
}

// await waits until no WRITE of the pages of a READ is under way, but for those that it has to pass.
// It tells how many had begun by then.
func (w *writes) await(c *conn, in *fuse.ReadIn) (begun uint64) {
	begun = w.begun.Load()
	if w.some.Load() == 0 {
		return begun
	}
	var late *time.Timer
	for pass := false; ; begun = w.begun.Load() {
		stirs := w.of(pagesOf(in.Offset, in.Size), pass)
		if stirs == nil {
			return begun
		}
		if late == nil {
			c.willWait(in.Unique)
			late = time.NewTimer(writesTime)
			defer late.Stop()
		}
		select {
		case <-stirs:
		case <-late.C:
			pass = true
		case <-c.dead:
			pass = true
		}
	}
}

// since reports whether a WRITE of these pages may have begun since so many had.
func (w *writes) since(begun uint64, r pageRange) bool {
	if w.begun.Load() == begun {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.begun.Load()
	if now-begun > lastWrites {
		return true
	}
	for i := begun + 1; i <= now; i++ {
		if w.last[i%lastWrites].meets(r) {
			return true
		}
	}
	return false
}

// written is called before a WRITE is answered: if its pages may have been read before it was done
// the kernel drops them. They may be locked for it, or for a READ that waits; then nobody has
// read what is in them.
func written(b *base, n *node, in *fuse.WriteIn) {
	if x := n.writes.over(in.Unique); x.passed {
		b.stats.PageDrops.Add(1)
		n.notified.Add(1)
		untilItWaits(b, 1, func(int) { b.dev.forgetPages(n.id, x.off, x.end-x.off) })
	}
}

// writesAgain is begin for a request that was read by another process, before any READ is served.
func writesAgain(b *base, in []byte) (over func()) {
	if len(in) < int(unsafe.Sizeof(fuse.WriteIn{})) {
		return func() {}
	}
	x := (*fuse.WriteIn)(unsafe.Pointer(&in[0]))
	h := b.handles.get(x.Fh)
	if h == nil || x.WriteFlags&fuse.WRITE_CACHE != 0 {
		return func() {}
	}
	h.n.writes.begin(x, true)
	request := x.Unique
	return func() { h.n.writes.over(request) }
}
