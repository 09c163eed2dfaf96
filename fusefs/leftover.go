package fusefs

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// A request that waits for another host when its process is replaced is not
// answered. The next process has its bytes, and does it anew: under its number,
// which is all that the kernel knows of it.

// first is the request with which the conversation began, and its answer.
type first struct{ asked, answer []byte }

// leftRequest is a request that the next process does anew.
type leftRequest struct {
	Bytes []byte
	// Interrupted: the kernel has withdrawn it, and does not say so again.
	Interrupted bool
	// Key and Handle are of a lock that it waits for, or was granted, through a
	// handle that nobody knows yet: by these the lock engine finds it again.
	// Handle is 0 if there is none.
	Key    locks.Key
	Handle locks.HandleID

	opened    uint64 // in the ledger of that, but nobody was told: an open file
	past      *past  // what a process that was killed had done of it; or nil
	slot      slot   // where it is noted in this process
	elsewhere bool   // it is in no slot, though it should be
}

// leftOver are the requests that this process leaves, or that the one before it
// has left.
type leftOver struct {
	mu       sync.Mutex
	requests []leftRequest
	// reserved are the handles of requests by their numbers. some is how many.
	reserved map[uint64]reservation
	some     atomic.Int32
}

type reservation struct {
	key    locks.Key
	handle locks.HandleID
}

// reserve remembers the handle of a request that is left to the successor.
func (c *conn) reserve(request uint64, k locks.Key, h locks.HandleID) {
	l := &c.left
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserved == nil {
		l.reserved = make(map[uint64]reservation)
	}
	l.reserved[request] = reservation{k, h}
	l.some.Store(int32(len(l.reserved)))
}

// noteReserved notes in its slot by which handle a request is going to wait for a lock
// of k.
func (c *conn) noteReserved(request uint64, k *locks.Key, h uint64) {
	if c.requests == nil {
		return
	}
	if r := c.readers.of(request); r != nil && r.slot.slotHead != nil {
		r.slot.reserve(*k, locks.HandleID(h))
	}
}

// noteOpened notes in its slot which open file a request puts into the ledger.
func (c *conn) noteOpened(request, h uint64) {
	if r := c.readers.of(request); r != nil && r.slot.slotHead != nil {
		r.slot.opened.Store(h)
	}
}

// reserved takes what was reserved for a request; 0: nothing, for that key.
func (c *conn) reserved(request uint64, k *locks.Key) (r reservation) {
	l := &c.left
	if l.some.Load() == 0 {
		return r
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.reserved[request]
	if !ok || k != nil && r.key != *k {
		return reservation{}
	}
	delete(l.reserved, request)
	l.some.Store(int32(len(l.reserved)))
	return r
}

// handleFor is the number of a new handle, through which a request asks for a
// lock of k.
func (b *base) handleFor(in *fuse.InHeader, k locks.Key) uint64 {
	if b.conn != nil {
		if r := b.conn.reserved(in.Unique, &k); r.handle != 0 {
			b.conn.noteReserved(in.Unique, &k, uint64(r.handle))
			return uint64(r.handle)
		}
	}
	id := b.newID()
	if b.conn != nil {
		b.conn.noteReserved(in.Unique, &k, id)
	}
	return id
}

// isBequeathed reports whether an answer is none.
func isBequeathed(out []byte) bool {
	return isError(out, maxErrno)
}

// isError reports whether an answer is this error.
func isError(out []byte, e unix.Errno) bool {
	return len(out) >= readHead && int32(binary.NativeEndian.Uint32(out[4:])) == -int32(e)
}

// leave keeps a request for the next process. If there is none it makes an
// answer of out, and is false.
func (c *conn) leave(in, out []byte) bool {
	if !closed(c.pause.succeeded) {
		io := int32(unix.EIO)
		binary.NativeEndian.PutUint32(out[4:], uint32(-io))
		return false
	}
	x := leftRequest{Bytes: slices.Clone(in), Interrupted: c.readers.wasInterrupted(head(in).Unique)}
	r := c.reserved(head(in).Unique, nil)
	x.Key, x.Handle = r.key, r.handle
	c.left.mu.Lock()
	c.left.requests = append(c.left.requests, x)
	c.left.mu.Unlock()
	return true
}

// doAgain does the requests that the process before this one has left, each in
// the background. It returns when all have begun.
func (c *conn) doAgain() {
	c.left.mu.Lock()
	requests := c.left.requests
	c.left.requests = nil
	c.left.mu.Unlock()
	answerAgain(c)
	var begun []func()
	for i := range requests {
		x := &requests[i]
		in := x.Bytes
		switch {
		case x.slot.slotHead != nil:
			in = x.slot.data[:len(in):len(in)]
		case head(in).Opcode == opWrite:
			in = (*c.large.Get().(*[]byte))[pageSize-writeHead:] // as a reader has it
			in = in[:copy(in, x.Bytes)]
		}
		if x.Handle != 0 {
			c.reserve(head(in).Unique, x.Key, x.Handle)
		}
		r := c.readers.again(head(in).Unique)
		c.readers.mu.Lock()
		r.slot, r.past = x.slot, x.past
		c.readers.mu.Unlock()
		over := func() {}
		if head(in).Opcode == opWrite {
			over = c.again(in)
		}
		begun = append(begun, func() {
			c.loops.Go(func() { c.doOneAgain(r, in, &x.slot, x.elsewhere, over) })
			if x.Interrupted {
				c.loops.Go(func() { c.interruptSoon(head(in).Unique) })
			}
		})
	}
	for _, begin := range begun { // when all WRITEs are known
		begin()
	}
}

func (c *conn) doOneAgain(r *reader, in []byte, s *slot, elsewhere bool, over func()) {
	number, op := head(in).Unique, head(in).Opcode
	if _, err := c.answer(in, s); err != nil {
		c.log.Warn("the kernel did not take an answer", "request", RequestName(op), "err", err)
	}
	over()
	if x := c.reserved(number, nil); x.handle != 0 {
		c.unused(x) // it has come to something else this time
	}
	c.isOver(r)
	on, _ := c.readers.end(r)
	if s.giveBack(); elsewhere {
		c.requests.h.elsewhere.Add(-1)
	}
	if on {
		c.readAs(r)
	}
}

// interruptSoon interrupts a request as soon as go-fuse knows it.
func (c *conn) interruptSoon(request uint64) {
	for c.readers.serves(request) && !c.interrupt(request) {
		time.Sleep(time.Millisecond)
	}
}

// interrupt ends the waiting of a request, as the kernel does by INTERRUPT. It is
// false if it is not known, or was interrupted before.
func (c *conn) interrupt(request uint64) bool {
	in := fuse.InterruptIn{Unique: request}
	in.Opcode, in.Length = opInterrupt, uint32(unsafe.Sizeof(in))
	b := unsafe.Slice((*byte)(unsafe.Pointer(&in)), unsafe.Sizeof(in))
	n, _ := c.proto.HandleRequest([][]byte{b}, [][]byte{make([]byte, smallSize)})
	return n == 0
}

// pause has nobody begin to read any more. It tells how many wait in read(2).
func (rs *readers) pause() (waiting int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.paused = true
	return rs.waiting
}

// goOn ends pause.
func (rs *readers) goOn() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.paused {
		rs.paused = false
		rs.more()
	}
}

// atWork is how many wait in read(2), and how many requests are being answered.
func (rs *readers) atWork() (waiting, serving int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.waiting, len(rs.serving)
}

// again is begin for a request that was read by another process.
func (rs *readers) again(request uint64) *reader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := &reader{request: request, since: rs.ticks, waits: true, left: true}
	rs.serving[request] = r
	return r
}

// isLeft reports whether a request was read by another process.
func (rs *readers) isLeft(request uint64) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.serving[request]
	return r != nil && r.left
}

// interrupt notes that the kernel has sent the INTERRUPT in.
func (rs *readers) interrupt(in []byte) {
	if len(in) < int(unsafe.Sizeof(fuse.InterruptIn{})) {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.serving[(*fuse.InterruptIn)(unsafe.Pointer(&in[0])).Unique]; r != nil {
		r.interrupted = true
		if r.slot.slotHead != nil {
			r.slot.interrupted.Store(1)
		}
	}
}

func (rs *readers) wasInterrupted(request uint64) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.serving[request]
	return r != nil && r.interrupted
}

// isOver is called when the request of r is answered.
func (c *conn) isOver(r *reader) {
	if p := r.past; p != nil {
		c.over(p)
		c.redo.decide(p)
	}
}
