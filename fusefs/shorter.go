package fusefs

import (
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// The kernel may believe that a file is as long as it was before another host has made it
// shorter. A read(2) asks for the size first, and a READ that gets less than it has asked for
// tells where the file ends. But the kernel ignores either if it was notified of anything about
// the file since it asked, and shows zeros for what is missing. And notifications come while a
// READ waits: for its lock; until this host is sure of its locks, while other programs get some
// and pages are dropped of all files that those may protect; or for the process that goes on in
// the place of one that was killed, which has all dropped that it does not know about.
//
// So a READ that has waited so, and meets the end of such a file, fails, and the kernel asks
// once more, page by page: it takes that for a failure of reading ahead. A program is told EINTR
// where the kernel has begun with the very page before, and so does not read ahead. Where it was
// another wait than that for the lock a READ fails only if its program is seen to wait for a
// page, and not for the answer: pages stay behind that were not read, and a kill may come between.
//
// What drops pages or attributes for a lock, or for a lease of names, waits, for a moment, until who
// was answered last where the file ends, or is going to ask once more, has gone on. Other
// notifications do not.

// lateRead is a READ that may have been asked for before a notification.
type lateRead struct {
	waited   bool   // for the open lock of its handle
	old      bool   // until the node was sure of its locks, or for this process
	notified uint64 // how many notifications of the file there were when it came
}

// mayBeOld reports whether a READ, which is begun, was asked for before this process has had the
// kernel drop what the one before it has left.
func (fc *fileCalls) mayBeOld(in *fuse.ReadIn) bool {
	return fc.redo.dropped != nil && !closed(fc.redo.dropped) || fc.conn.readers.isLeft(in.Unique)
}

// failedRead is a READ that is made again. What comes for the same pages was asked for after it,
// since they were locked for it.
type failedRead struct {
	pages    pageRange
	at       int64  // on the server's clock
	notified uint64 // notifications of the file
}

// readAgain reports whether a READ of n, which has got what there is before end, has to be
// made once more: the kernel may believe that there is more, and ignore that there is not.
// In a page that is mapped nothing is wrong with zeros there.
func (fc *fileCalls) readAgain(n *node, in *fuse.ReadIn, end int64, late lateRead) bool {
	if end >= n.bounds.most.Load() {
		return false
	}
	x := newRereading(in.Pid, end, fc.now())
	x.request.Store(in.Unique)
	n.again.Store(x) // a notification from now on awaits it
	notified := n.notified.Load()
	pages := pagesOf(in.Offset, in.Size)
	y := n.failed.Load()
	second := y != nil && y.pages.meets(pages) && y.notified == notified && fc.now()-y.at <= takenOver
	again := late.waited || (late.old || notified != late.notified) && fc.procs.awaitsPage(in.Pid)
	if second || !again || fc.procs.isInFault(in.Pid) {
		return false
	}
	n.failed.Store(&failedRead{pages, fc.now(), notified})
	n.again.Store(newRereading(in.Pid, end, fc.now()))
	return true
}

// rereading is a READ that is made again, or was answered where the file ends. Until the program
// has gone on that has made it the open lock stays, and no notification is sent because that is
// wanted: the kernel would ignore what it says of the size.
//
// What is made again is made a page at a time.
type rereading struct {
	tid     uint32
	end     int64         // of the file
	at      atomic.Int64  // when the last part of it was admitted, on the server's clock
	request atomic.Uint64 // the one that meets the end; 0: it is to be made again, and was not admitted
	ran     progress      // the yielder's
}

func newRereading(tid uint32, end, now int64) *rereading {
	x := &rereading{tid: tid, end: end}
	x.at.Store(now)
	return x
}

// rereadTime is much longer than it takes the kernel to make a READ again, if it does.
const rereadTime = 1000 // ms

// comes is called when a READ is admitted, which may be made again.
func (x *rereading) comes(in *fuse.ReadIn, now int64) {
	if x == nil || x.tid != in.Pid {
		return
	}
	if x.at.Store(now); pagesOf(in.Offset, in.Size).end >= x.end {
		x.request.Store(in.Unique)
	}
}

// isUnderway reports whether the program of x, a READ of n, has not gone on.
func (x *rereading) isUnderway(b *base, n *node, ran *progress) bool {
	request := x.request.Load()
	if age := b.now() - x.at.Load(); age <= rereadTime || request != 0 && age <= takenOver {
		if request == 0 || b.conn.readers.serves(request) || !b.procs.hasGoneOn(x.tid, ran) {
			return true
		}
	}
	n.again.CompareAndSwap(x, nil)
	return false
}

// isRereading reports whether a READ of n is made again.
func (y *yielder) isRereading(n *node) bool {
	x := n.again.Load()
	return x != nil && x.isUnderway(y.base, n, &x.ran)
}

// A notification waits so long at most for who has read, and for a READ that does not come, or
// waits, though its program sleeps: a lock may wait for it.
const (
	endsTime   = 200 // ms
	asleepTime = 20  // ms
)

// awaitEnds waits, before a notification of n, until the program has gone on that has read to
// the end of the file.
func awaitEnds(b *base, n *node) {
	x := n.again.Load()
	if x == nil {
		return
	}
	var ran, sleeps progress
	for begun := b.now(); x.isUnderway(b, n, &ran); time.Sleep(settleEvery) {
		now := b.now()
		asleep := x.request.Load() == 0 && now-max(begun, x.at.Load()) > asleepTime && b.procs.hasGoneOn(x.tid, &sleeps)
		if asleep || now-begun > endsTime {
			return
		}
	}
}
