package fusefs

import (
	"slices"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// takeQueued takes the requests that the kernel has ready, before it is told to drop pages, if
// the process before this one was killed: they are done with those that it has left.
//
// The data of a WRITE are in pages until it is read. If a program makes a file longer, and
// has changed its last page through a mapping before, the kernel has zeros there behind the
// end that it knows when it writes that page out (since Linux 6.17), as it does when it
// drops it: they would be written in place of the data. Mostly a WRITE is read at once;
// without a daemon it waits, and what this process does first is to have all pages dropped.
//
// Nothing is answered meanwhile, so that there is an end of it.
func (c *conn) takeQueued() {
	dev := -1
	if c.file.raw.Control(func(fd uintptr) { dev = int(fd) }) != nil {
		return
	}
	flags, err := unix.FcntlInt(uintptr(dev), unix.F_GETFL, 0)
	if err != nil {
		return
	}
	// A request whose program is killed is withdrawn, and a read(2) would wait.
	if _, err := unix.FcntlInt(uintptr(dev), unix.F_SETFL, flags|unix.O_NONBLOCK); err != nil {
		return
	}
	defer func() { _, _ = unix.FcntlInt(uintptr(dev), unix.F_SETFL, flags&^unix.O_NONBLOCK) }()
	r := &reader{} // to keep slots
	defer r.givesBack()
	for {
		p := newPlace(c, r)
		n, err := c.file.read(p.in)
		for err == unix.ENOENT {
			n, err = c.file.read(p.in)
		}
		if err != nil || n < headSize {
			p.leave(c, r)
			return
		}
		in := p.settle(c, r, p.in[:n])
		if head(in).Opcode == opInterrupt && n >= int(unsafe.Sizeof(fuse.InterruptIn{})) {
			c.left.withdraw((*fuse.InterruptIn)(unsafe.Pointer(&in[0])).Unique)
			p.leave(c, r)
			continue
		}
		x := leftRequest{Bytes: in, slot: p.slot, elsewhere: p.elsewhere}
		if p.b != nil {
			x.Bytes = slices.Clone(in)
			c.large.Put(p.b)
		}
		c.left.mu.Lock()
		c.left.requests = append(c.left.requests, x)
		c.left.mu.Unlock()
	}
}

// withdraw notes that the kernel has withdrawn a request that is left.
func (l *leftOver) withdraw(request uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.requests {
		if x := &l.requests[i]; head(x.Bytes).Unique == request {
			if x.Interrupted = true; x.slot.slotHead != nil {
				x.slot.interrupted.Store(1)
			}
		}
	}
}
