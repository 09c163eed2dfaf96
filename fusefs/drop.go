package fusefs

import (
	"cmp"
	"slices"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// parkedRequest is one that waits, for a lock or the end of a suspension, while
// the kernel keeps pages of a file locked for it. The kernel does not get past
// these when it is to drop the pages of the file.
type parkedRequest struct {
	kind     parkedKind
	off, end int64 // the bytes of its pages, if that is known
}

type parkedKind int

const (
	// parkedFile: the kernel writes nothing of the file back meanwhile, or it
	// is not known which pages they are.
	parkedFile parkedKind = iota
	// parkedPages are being filled, so nobody can have changed them.
	parkedPages
	// parkedAside is in nobody's way: it keeps no pages locked, or one that is
	// being written back and waits for nothing but the end of a suspension.
	parkedAside
)

// parks tells how a request parks.
func parks(in *fuse.InHeader) *parkedRequest {
	const page = pageSize - 1
	pages := func(off, end uint64) *parkedRequest {
		return &parkedRequest{kind: parkedPages, off: int64(off &^ page), end: int64((end + page) &^ page)}
	}
	switch in.Opcode {
	case opRead:
		r := (*fuse.ReadIn)(unsafe.Pointer(in))
		return pages(r.Offset, r.Offset+uint64(r.Size))
	case opWrite:
		w := (*fuse.WriteIn)(unsafe.Pointer(in))
		if w.WriteFlags&fuse.WRITE_CACHE != 0 {
			return &parkedRequest{kind: parkedAside}
		}
		// Only the last page can be locked, if the kernel did not have it.
		end := w.Offset + uint64(max(w.Size, 1))
		return pages(end-1, end)
	case opGetAttr, opOpen, opFsync, opFallocate, opLseek, opCopy:
		return &parkedRequest{kind: parkedAside}
	}
	return new(parkedRequest)
}

// parkRequest announces that a request on n begins to wait while the kernel
// keeps pages of n locked for it; the result ends that.
func (f *fileSystem) parkRequest(n *node, in *fuse.InHeader) (unpark func()) {
	p := parks(in)
	n.cacheMu.Lock()
	if n.parked == nil {
		n.parked = make(map[*parkedRequest]struct{})
	}
	n.parked[p] = struct{}{}
	if n.park != nil {
		close(n.park)
		n.park = nil
	}
	n.cacheMu.Unlock()
	return func() {
		n.cacheMu.Lock()
		delete(n.parked, p)
		n.cacheMu.Unlock()
	}
}

// parking are the requests that are parked, and a channel that is closed when
// there is one more.
func (n *node) parking() (parked []parkedRequest, more <-chan struct{}) {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	for p := range n.parked {
		parked = append(parked, *p)
	}
	if n.park == nil {
		n.park = make(chan struct{})
	}
	return parked, n.park
}

// dropping reports whether the kernel is dropping the pages of n.
func (n *node) dropping() bool {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	return n.drop != nil
}

// pageDrop is a notification by which the kernel drops the pages of a file.
type pageDrop struct {
	done chan struct{} // closed when it is over
}

// startDrop makes the kernel write out and drop the pages of n, and forget its
// attributes. The result is closed when that is done.
//
// While a request is parked a notification may hang, and it takes a thread. So
// there is one at a time, and behind it one for all who come meanwhile.
func (f *fileSystem) startDrop(n *node) (done <-chan struct{}) {
	f.stats.PageDrops.Add(1)
	d := &pageDrop{done: make(chan struct{})}
	n.cacheMu.Lock()
	waits := n.drop != nil
	switch {
	case !waits:
		n.drop, n.dropped = d, make(chan struct{})
	case n.nextDrop == nil:
		n.nextDrop = d
	default:
		d = n.nextDrop
	}
	// Not before: who finds that nothing is cached must find this drop.
	n.cached.Store(false)
	n.attrTold.Store(false)
	n.sizes = toldSizes{}
	n.cacheMu.Unlock()
	if waits {
		f.dev.forgetAttr(n.id) // which waits for nothing
	} else {
		f.background(func() { f.runDrops(n, d) })
	}
	return d.done
}

// runDrops makes d, and those that are wanted when it is over.
func (f *fileSystem) runDrops(n *node, d *pageDrop) {
	for d != nil {
		filled := n.filled.Load()
		f.dev.forgetPages(n.id, 0, 0)
		n.empty.Store(filled)
		n.cacheMu.Lock()
		over := d
		d, n.nextDrop = n.nextDrop, nil
		if n.drop = d; d == nil {
			close(n.dropped)
		}
		n.cacheMu.Unlock()
		close(over.done)
	}
}

// drop makes the kernel write out and drop the pages of n, and forget its
// attributes, and waits until that is done.
//
// If a request is parked, the lock that it waits for may be one that is not
// granted before drop returns. Then drop returns early; what is left is dropped
// when the request has been answered, the attributes are gone already, and so
// read(2) comes back to ask for them and waits for the rest (see awaitDrops).
func (f *fileSystem) drop(n *node) {
	done := f.startDrop(n)
	parked, more := n.parking()
	if len(parked) > 0 {
		return
	}
	select {
	case <-done:
	case <-more:
	}
}

// writeOut is drop for pages that programs have changed. They are on the
// storage when it returns: it does not get by a request that is parked, but
// goes round the pages of it, which cannot have been changed. (While a
// truncate(2) waits, the kernel writes nothing out, and nothing can be done.)
//
// The kernel may lock more together than a page. Then the way round does not
// end before the request does, and writeOut gives it up.
func (f *fileSystem) writeOut(n *node) {
	done := f.startDrop(n)
	late := time.After(roundTime)
	for again := true; again; {
		parked, more := n.parking()
		if slices.ContainsFunc(parked, func(p parkedRequest) bool { return p.kind == parkedFile }) {
			return
		}
		parked = slices.DeleteFunc(parked, func(p parkedRequest) bool { return p.kind == parkedAside })
		if len(parked) > 0 {
			again = f.writeOutAround(n, parked, done, more, late)
			continue
		}
		select {
		case <-done:
			return
		case <-more:
		}
	}
}

// roundTime is much longer than to write the pages of a file out takes.
const roundTime = 10 * time.Second

// writeOutAround drops what is not of parked requests. It reports whether it
// has to be begun again, because there is one more.
func (f *fileSystem) writeOutAround(n *node, parked []parkedRequest, done, more <-chan struct{}, late <-chan time.Time) (again bool) {
	slices.SortFunc(parked, func(a, b parkedRequest) int { return cmp.Compare(a.off, b.off) })
	parked = append(parked, parkedRequest{}) // behind the last one
	off := int64(0)
	for i, p := range parked {
		if last := i == len(parked)-1; last || p.off > off {
			length := p.off - off
			if last {
				length = 0 // to the end
			}
			from, part := off, make(chan struct{})
			f.background(func() {
				defer close(part)
				f.dev.forgetPages(n.id, from, length)
			})
			select {
			case <-part:
			case <-done:
				return false
			case <-more:
				return true
			case <-late:
				f.log.Error("changed pages of a file could not be written out beside a request that waits: other hosts may read old data",
					"path", f.tree.pathTo(n))
				return false
			}
		}
		off = max(off, p.end)
	}
	return false
}
