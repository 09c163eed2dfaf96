package fusefs

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// conn is the conversation with the kernel: it reads requests from /dev/fuse,
// has go-fuse decode them and call the file system, and writes the answers.
// Which goroutine reads is decided by readers.
type conn struct {
	file    *fuseFile
	start   time.Time // see now
	proto   *fuse.ProtocolServer
	log     *slog.Logger
	kernel  uint64           // what the kernel can do: FUSE_INIT flags
	took    [64]atomic.Int64 // how long requests of a kind take, see slow
	readers *readers
	large   sync.Pool      // of *[]byte, of largeSize
	medium  sync.Pool      // of *[]byte, of mediumSize for data
	small   sync.Pool      // of *[]byte, of smallSize
	loops   sync.WaitGroup // of the readers

	watching atomic.Bool   // watch looks
	wake     chan struct{} // it begins to

	pause *pausing
	first first // see greet

	requests *Requests // in which they are read; or nil
	redo     *redo
	over     func(*past)  // is told of what was decided, or not
	answers  []leftAnswer // of the process before this one, which may have been written
	owes     atomic.Int32 // what is to be done when answers are noted, see told
	point    point
	unused   func(reservation)
	left     leftOver

	again func(in []byte) (over func()) // is told of WRITEs of before, see writesAgain

	observe func(opcode uint32, took time.Duration, read, written int) // see Options.Observe
	load    func(Load)                                                 // see Options.Load

	messages func() uint64 // see Options.Messages

	stale func(id uint64)     // is told of nodes that are stale
	held  func(opcode uint32) // tests keep answers back by it; or nil
	dying sync.Once
	dead  chan struct{} // closed when the mount is gone

	serving chan struct{} // closed when requests are read, and those of before have begun
}

// newConn takes dev, and answers the first request of the kernel, INIT.
func newConn(f *fileSystem, dev int, o *fuse.MountOptions) (*conn, error) {
	c := newConnOf(f, o)
	if err := c.takes(dev); err != nil {
		return nil, err
	}
	if err := c.greet(); err != nil {
		c.file.close()
		return nil, fmt.Errorf("the conversation with the kernel: %w", err)
	}
	return c, nil
}

// takes has c go by dev.
func (c *conn) takes(dev int) (err error) {
	c.file, err = newFuseFile(os.NewFile(uintptr(dev), "/dev/fuse"))
	return err
}

// newConnOf prepares a conversation.
func newConnOf(f *fileSystem, o *fuse.MountOptions) *conn {
	c := &conn{
		start:   time.Now(),
		proto:   fuse.NewProtocolServer(f, o),
		log:     f.log,
		readers: newReaders(max(usualReaders, runtime.GOMAXPROCS(0)-1)),
		wake:    make(chan struct{}, 1),
		dead:    make(chan struct{}),
		serving: make(chan struct{}),
		observe: f.opts.Observe, load: f.opts.Load,
		messages: f.opts.Messages,
		pause:    f.pause,
		redo:     &f.redo,
		over:     touches{f.base}.over,
		point:    f.point,
		stale:    f.finder.distrustPath,
		again:    func(in []byte) (over func()) { return writesAgain(f.base, in) },
		unused: func(r reservation) {
			f.locker.UnlockHandle(r.key, r.handle, "the request has come to something else")
		},
	}
	if o := f.opts.Ledger; o != nil {
		c.requests = o.Requests
	}
	c.readers.start = func() { c.loops.Go(c.read) }
	c.large.New = func() any { return newBuffer(largeSize) }
	c.medium.New = func() any { return newBuffer(pageSize + mediumSize) }
	c.small.New = func() any { b := make([]byte, smallSize); return &b }
	return c
}

func (c *conn) greet() (err error) {
	b := c.large.Get().(*[]byte)
	defer c.large.Put(b)
	in := *b
	n, err := c.file.read(in)
	if err != nil {
		return err
	}
	var init fuse.InitIn
	copy(rawBytes(&init), in[:n])
	if init.Opcode != opInit {
		return fmt.Errorf("it begins with request %d", init.Opcode)
	}
	c.kernel = init.Flags64()
	c.first.asked = slices.Clone(in[:n])
	_, err = c.answer(in[:n], nil)
	return err
}

// rawBytes is the memory of init.
func rawBytes(init *fuse.InitIn) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(init)), unsafe.Sizeof(*init))
}

// Some numbers of requests, from include/uapi/linux/fuse.h.
const (
	opLookup      = 1
	opGetAttr     = 3
	opSetAttr     = 4
	opReadlink    = 5
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opRelease     = 18
	opFsync       = 20
	opGetXAttr    = 22
	opListXAttr   = 23
	opFlush       = 25
	opInit        = 26
	opReadDir     = 28
	opSetLk       = 32
	opSetLkw      = 33
	opCreate      = 35
	opInterrupt   = 36
	opIoctl       = 39
	opFallocate   = 43
	opReadDirPlus = 44
	opLseek       = 46
	opCopy        = 47
)

// serve answers requests until the mount is gone and all are answered.
func (c *conn) serve(killed bool) {
	over := make(chan struct{})
	watch := make(chan struct{})
	go func() {
		defer close(watch)
		c.watch(over)
	}()
	c.loops.Go(func() { <-c.dead }) // also while nobody reads
	if killed {
		c.takeQueued()
	}
	c.doAgain()
	c.loops.Go(c.read)
	close(c.serving)
	c.loops.Wait()
	close(over)
	<-watch
	c.file.close()
}

// close ends a conversation that perhaps never was served.
func (c *conn) close() {
	if c.file != nil {
		c.file.close()
	}
}

// read reads requests and answers them for as long as readers wants it.
func (c *conn) read() {
	growStack()
	c.readAs(c.readers.reading())
}

func (c *conn) readAs(r *reader) {
	others := newPauses(runtime.GOMAXPROCS(0), c.now, c.messages)
	defer r.givesBack()
	for c.readers.wait(r) {
		p := newPlace(c, r)
		in := p.in
		asked := c.now()
		n, err := c.file.read(in)
		for err == unix.ENOENT { // its program was killed in this moment
			n, err = c.file.read(in)
		}
		if err == nil && n < headSize {
			err = fmt.Errorf("a request of %d bytes", n)
		}
		if err != nil {
			p.leave(c, r)
			c.end(err)
			return
		}
		op, began := head(in).Opcode, c.now()
		over, on := c.serveOne(r, &p, in[:n], began, began-asked < readyTime)
		if !on {
			return
		}
		others.after(op, over, r.beside)
	}
}

// now is how long c has been there. It takes half as long as time.Now, which reads two clocks.
func (c *conn) now() time.Duration { return time.Since(c.start) }

// stackNeeded is what most requests need, in bytes.
const stackNeeded = 12 << 10

// growStack gives a new goroutine the stack that it will need. Otherwise it
// would grow in steps during its first requests, where each step has all calls
// so far to move, and a program waits for it.
//
//go:noinline
func growStack() {
	var b [stackNeeded]byte
	runtime.KeepAlive(&b)
}

// readyTime is less than a thread takes to fall asleep and wake up.
const readyTime = 2 * time.Microsecond

const headSize = int(unsafe.Sizeof(fuse.InHeader{}))

// serveOne answers the request in, which is at p and was read when it began, and gives that
// back. It reports when that was over, and whether r reads on.
func (c *conn) serveOne(r *reader, p *place, in []byte, began time.Duration, ready bool) (over time.Duration, on bool) {
	in = p.settle(c, r, in)
	r.slot = p.slot
	defer p.leave(c, r)
	took := &c.took[head(in).Opcode%uint32(len(c.took))]
	c.readers.begin(r, head(in).Unique, ready, time.Duration(took.Load()) > slow)
	c.awake()
	op := head(in).Opcode
	if op == opInterrupt {
		c.readers.interrupt(in)
	}
	n, err := c.answer(in, &p.slot)
	if err != nil {
		c.log.Warn("the kernel did not take an answer", "request", RequestName(op), "err", err)
	}
	on, waited := c.readers.end(r)
	over = c.now()
	lasted := over - began
	if !waited {
		// A moving average. That two at once lose one of theirs is no harm.
		avg := took.Load()
		took.Store(avg + (int64(lasted)-avg)/8)
	}
	if c.observe != nil {
		c.tell(op, lasted, n, len(in))
	}
	return over, on
}

// tell has the observer count a request with so many bytes, headers included, and
// its answer. What a WRITE gives counts also where the storage takes a part of it.
func (c *conn) tell(op uint32, took time.Duration, answered, asked int) {
	read, written := 0, 0
	switch op {
	case opRead:
		read = max(answered-readHead, 0)
	case opWrite:
		if answered > readHead { // no error
			written = max(asked-writeHead, 0)
		}
	}
	c.observe(op, took, read, written)
}

// slow is how long requests of a kind take on average that had better not keep
// others waiting. To let another goroutine read takes some tens of microseconds.
const slow = time.Millisecond

func head(in []byte) *fuse.InHeader { return (*fuse.InHeader)(unsafe.Pointer(&in[0])) }

// answer has a request handled and writes the answer, of n bytes. An error
// is that of the writing, where it means something. s is the slot of the request, if
// it has one.
func (c *conn) answer(in []byte, s *slot) (n int, err error) {
	pool, from := &c.small, 0
	switch size := room(in); {
	case size > mediumSize:
		pool, from = &c.large, pageSize-readHead
	case size > 0:
		pool, from = &c.medium, pageSize-readHead
	}
	var out []byte
	if noted := s.answersIn(pool == &c.small); noted != nil {
		out = noted
		s.before(in)
	} else {
		s = nil
		b := pool.Get().(*[]byte)
		defer pool.Put(b)
		out = (*b)[from:]
	}
	st := fuse.ENOSYS
	if asksForPhantom(in) {
		st = fuse.ENOENT
	} else if RequestName(head(in).Opcode) != "" {
		n, st = c.proto.HandleRequest([][]byte{in}, [][]byte{out})
	}
	if !st.Ok() {
		h := fuse.OutHeader{Length: uint32(readHead), Status: -int32(st), Unique: head(in).Unique}
		n = copy(out, unsafe.Slice((*byte)(unsafe.Pointer(&h)), readHead))
	}
	if n == 0 {
		return 0, nil // FORGET
	}
	if isError(out[:n], unix.ESTALE) {
		c.stale(head(in).NodeId)
	}
	if head(in).Opcode == opInit {
		c.first.answer = slices.Clone(out[:n])
	}
	if isBequeathed(out[:n]) && c.leave(in, out) {
		return 0, nil
	}
	if s != nil {
		s.notes(c, in, n)
	}
	if c.held != nil {
		c.held(head(in).Opcode)
	}
	err = c.file.write(out[:n])
	c.point.at(in, atAnswered)
	if err == unix.ENOENT || err == unix.ENODEV {
		return n, nil // the program is gone, or the mount
	}
	return n, err
}

// willWait is called by the request with this number before it waits for
// anything but the storage.
func (c *conn) willWait(request uint64) { c.readers.willWait(request) }

// blocks is called by the request with this number before it waits for the
// storage.
func (c *conn) blocks(request uint64) { c.readers.block(request) }

// onWait is willWait, as locks.Request.Waits has it.
func (b *base) onWait(in *fuse.InHeader) func() {
	request := in.Unique
	return func() { b.conn.willWait(request) }
}

// end is called by each reader that cannot read any more.
func (c *conn) end(err error) {
	c.dying.Do(func() {
		if err != unix.ENODEV && err != unix.ECONNABORTED {
			c.log.Error("the conversation with the kernel has ended", "err", err)
		}
		close(c.dead)
	})
}

// watchEvery is how long a request may keep others waiting that nobody reads.
const watchEvery = 5 * time.Millisecond

// awake makes sure that watch looks while requests come.
func (c *conn) awake() {
	if !c.watching.Load() && c.watching.CompareAndSwap(false, true) {
		select {
		case c.wake <- struct{}{}:
		default: // it is about to wake up
		}
	}
}

// watch lets somebody else read when all readers are held up, and ends what is
// under way when the mount is gone. It looks while requests come, and a little
// longer, until over is closed.
func (c *conn) watch(over <-chan struct{}) {
	t := time.NewTicker(watchEvery)
	t.Stop()
	defer t.Stop()
	const linger = 200 // ticks without a request
	quiet, last, dead := 0, uint64(0), c.dead
	var since time.Time // the first tick is watchEvery later
	load := newLoad(c.load)
	for {
		select {
		case <-over:
			return
		case <-dead:
			dead = nil
			t.Reset(watchEvery)
		case <-c.wake:
			quiet, since = 0, time.Now()
			t.Reset(watchEvery)
		case <-t.C:
			if dead == nil {
				// Again and again: one may be on its way into HandleRequest.
				c.interruptAll()
				continue
			}
			begun, beside := c.readers.tick()
			load.tick(time.Since(since)%watchEvery, begun, beside)
			if quiet++; begun != last {
				quiet, last = 0, begun
			}
			if quiet < linger {
				continue
			}
			// In this order: a request that begins now wakes it up again, or
			// is seen here.
			t.Stop()
			load.rest(begun)
			c.watching.Store(false)
			if begun, _ := c.readers.tick(); begun != last {
				c.awake()
			}
		}
	}
}

// interruptAll ends the waiting of all requests that are under way, as the
// kernel does for one by INTERRUPT.
func (c *conn) interruptAll() {
	for _, id := range c.readers.underway() {
		c.interrupt(id)
	}
}
