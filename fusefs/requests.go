package fusefs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// Requests is memory into which a mount with a ledger reads its requests, and where it
// notes how far each has got. read(2) of /dev/fuse puts them there: so there is no moment
// in which one was taken and is not known, also if the process is killed in that call.
//
// A request lies in a slot, which goes through phases: see phase. There are large ones,
// into which requests are read, and small ones, into which those are copied that are
// small, as they may wait for hours. If there is none, or no memory for one, a request is
// kept elsewhere, and it is counted that there are such: as long as there is one the
// memory is of no use to another process, and afterwards it is again.
type Requests struct {
	fd  int
	mem []byte
	h   *requestsHead
	// sizes are about answers that are out already.
	sizes sizeTable

	mu     sync.Mutex
	areas  [2]slotArea
	closed bool
}

const (
	requestsMagic = 0x7372_7874_7878_6d64 // dmxxtxrs
	largeSlots    = 4096
	smallSlots    = 1 << 17
	// keptSlots large slots stay in memory when they are free.
	keptSlots = 16
	// notifyingThreads may be in notifications at a time, and be known.
	notifyingThreads = 1000
)

// requestsHead is the first pages.
type requestsHead struct {
	magic, version, generation uint64
	tops                       [2]atomic.Uint32 // slots that were ever used
	elsewhere                  atomic.Int64     // requests that are not here
	unlocks                    atomic.Uint64    // see lockRecords.unlocks
	notifying                  [notifyingThreads]atomic.Uint32
}

const requestsHeadSize = 2 * pageSize

// slotArea are the slots of one size.
type slotArea struct {
	at, stride, most int
	top              int   // so many have been made ready
	free             []int // of these
	cold             []int // and of these, without memory but for the head
}

// phase is how far a request has got.
type phase = uint32

const (
	phaseFree    phase = iota
	phaseReading       // read(2) may have put one here: if it has a length it has
	phaseTaken         // it is here, and nothing was done
	phaseBegun         // the step that is noted was begun, and may be done
	phaseMade          // it is done
	phaseDone          // the answer is noted, and may have been written
)

// slotHead is what is noted of a request.
type slotHead struct {
	phase       atomic.Uint32 // with the number of the step that counts, above phaseBits
	interrupted atomic.Uint32 // the kernel has withdrawn it
	size        uint32        // of the request
	answerSize  uint32        // in phaseDone
	steps       [2]step
	// Of a lock that it waits for through an open file that nobody knows yet.
	reserved atomic.Uint64 // the handle; 0: none
	class    uint32
	keySize  uint32
	key      [keySpace]byte
	// The open file that it has put into the tables, and which nobody knows before the
	// answer; 0: none.
	opened atomic.Uint64
	answer [smallSize]byte
}

const (
	phaseBits = 4
	keySpace  = 256
)

// step is a change that a request makes, see change.
type step struct {
	op        uint32 // see stepOf
	errno     int32  // once it is made
	off       int64
	n         int64 // bytes
	fd        int32 // plus one: what it has made and opened
	protected uint32
	tenure    uint64
	token     uint64 // of the open lock; or ownToken
	turn      uint64 // so many explicit locks were granted before
	unlocks   uint64 // and so often one was given up; or noUnlocks
	was       was
	// What there is was looked at from began to looked, in ns of CLOCK_BOOTTIME; and touched
	// are the numbers by which [Options.Recent] has it.
	began, looked int64
	touched       [2]uint64
}

// ownToken is in place of that of an open lock which the request itself has taken, as
// open(2) that truncates.
const ownToken = ^uint64(0)

// noUnlocks is for what no explicit lock protects.
const noUnlocks = ^uint64(0)

// was is what there was before a step that cannot simply be done twice.
type was struct {
	known uint32 // 1: it was looked at
	_     uint32
	a, b  fileKey // the files of the names; 0 is none
	size  int64   // of a file that is appended to; 1: an attribute is as it is to be
	// When the directory was last changed, of what is made; when the file was born, of
	// what is removed.
	sec, nsec int64
	// When the file of a was last changed, and when it was born; 0: that is not known.
	csec, cnsec, bsec, bnsec int64
}

const (
	slotHeadSize  = (int(unsafe.Sizeof(slotHead{})) + 63) &^ 63
	smallStride   = (slotHeadSize + pageSize + 63) &^ 63
	largeStride   = pageSize + largeSize
	sizesAt       = requestsHeadSize
	largeAt       = sizesAt + sizeNotes*int(unsafe.Sizeof(sizeNote{}))
	smallAt       = largeAt + largeSlots*largeStride
	requestsBytes = (smallAt + smallSlots*smallStride + pageSize - 1) / pageSize * pageSize
)

func init() {
	if slotHeadSize > pageSize || int(unsafe.Sizeof(requestsHead{})) > requestsHeadSize || largeAt%pageSize != 0 {
		panic("fusefs: the head of a request has no room")
	}
}

// NewRequests makes memory for requests, which is closed by execve(2). generation tells
// it from others.
func NewRequests(generation uint64) (*Requests, error) {
	fail := func(err error) (*Requests, error) { return nil, fmt.Errorf("memory for requests: %w", err) }
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &lim) == nil && lim.Cur < uint64(requestsBytes) {
		return fail(fmt.Errorf("%d bytes are more than the limit of the size of files", requestsBytes))
	}
	fd, err := unix.MemfdCreate("dmxfs-requests", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fail(err)
	}
	if err = unix.Ftruncate(fd, int64(requestsBytes)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, requestSeals)
	}
	if err != nil {
		unix.Close(fd)
		return fail(err)
	}
	m, err := mapRequests(fd)
	if err != nil {
		unix.Close(fd)
		return fail(err)
	}
	if err := m.ready(0, largeAt); err != nil {
		m.Close()
		return fail(err)
	}
	m.h.version, m.h.generation = LedgerVersion, generation
	atomic.StoreUint64(&m.h.magic, requestsMagic)
	return m, nil
}

// requestSeals see to it that no access fails.
const requestSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

func mapRequests(fd int) (*Requests, error) {
	mem, err := unix.Mmap(fd, 0, requestsBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	m := &Requests{fd: fd, mem: mem, h: (*requestsHead)(unsafe.Pointer(&mem[0]))}
	m.sizes.notes = (*[sizeNotes]sizeNote)(unsafe.Pointer(&mem[sizesAt]))
	m.areas = [2]slotArea{{at: largeAt, stride: largeStride, most: largeSlots}, {at: smallAt, stride: smallStride, most: smallSlots}}
	return m, nil
}

// FD is the descriptor of the memory.
func (m *Requests) FD() int { return m.fd }

// Close lets go of the memory, which lives on as long as there is another descriptor.
// Nobody serves by it any more.
func (m *Requests) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	return errors.Join(unix.Munmap(m.mem), unix.Close(m.fd))
}

// ready has the kernel give memory, writable, such that no access to it has to wait for
// a page: a thread that is killed gets none, and its read(2) would fail. It would rather
// not see it swapped out.
func (m *Requests) ready(from, size int) error {
	to := min((from+size+pageSize-1)/pageSize*pageSize, len(m.mem))
	from = from / pageSize * pageSize
	b := m.mem[from:to]
	for {
		err := unix.Madvise(b, unix.MADV_POPULATE_WRITE)
		if err == unix.EINVAL { // Linux before 5.14
			err = unix.Fallocate(m.fd, 0, int64(from), int64(len(b)))
			for i := 0; err == nil && i < len(b); i += pageSize {
				p := (*uint32)(unsafe.Pointer(&b[i]))
				atomic.AddUint32(p, 0)
			}
		}
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err == nil {
			_ = unix.Mlock(b) // RLIMIT_MEMLOCK: it does without
		}
		return err
	}
}

// slot is one of the slots.
type slot struct {
	*slotHead
	m     *Requests
	area  int
	i     int
	data  []byte // where a request is
	large bool
}

const (
	largeArea = iota
	smallArea
)

func (m *Requests) slot(area, i int) slot {
	a := &m.areas[area]
	at := a.at + i*a.stride
	s := slot{slotHead: (*slotHead)(unsafe.Pointer(&m.mem[at])), m: m, area: area, i: i, large: area == largeArea}
	if s.large {
		b := m.mem[at+pageSize : at+a.stride : at+a.stride]
		s.data = b[pageSize-writeHead:] // as a reader has it, see newBuffer
	} else {
		s.data = m.mem[at+slotHeadSize : at+a.stride : at+a.stride]
	}
	return s
}

// take is a free slot; false: there is none.
func (m *Requests) take(area int) (slot, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &m.areas[area]
	if last := len(a.free) - 1; last >= 0 {
		i := a.free[last]
		a.free = a.free[:last]
		return m.slot(area, i), true
	}
	if last := len(a.cold) - 1; last >= 0 {
		i := a.cold[last]
		if m.ready(a.at+i*a.stride, a.stride) != nil {
			return slot{}, false
		}
		a.cold = a.cold[:last]
		return m.slot(area, i), true
	}
	more := 1
	if area == smallArea {
		more = 16
	}
	if a.top+more > a.most || m.ready(a.at+a.top*a.stride, more*a.stride) != nil {
		return slot{}, false
	}
	i := a.top
	for j := i + more - 1; j > i; j-- {
		a.free = append(a.free, j)
	}
	a.top += more
	m.h.tops[area].Store(uint32(a.top))
	return m.slot(area, i), true
}

// giveBack frees a slot.
func (s *slot) giveBack() {
	if s.slotHead == nil {
		return
	}
	s.phase.Store(phaseFree)
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &m.areas[s.area]
	s.slotHead = nil
	if s.large && len(a.free) >= keptSlots {
		at := a.at + s.i*a.stride
		b := m.mem[at+pageSize : at+a.stride]
		_ = unix.Munlock(b)
		if unix.Madvise(b, unix.MADV_REMOVE) == nil {
			a.cold = append(a.cold, s.i)
			return
		}
	}
	a.free = append(a.free, s.i)
}

// reads is called before read(2) puts a request here.
func (s *slot) reads() {
	head(s.data).Length = 0
	s.renew()
	s.phase.Store(phaseReading)
}

// renew forgets what was noted of the request that was here before.
func (s *slot) renew() {
	s.interrupted.Store(0)
	s.reserved.Store(0)
	s.opened.Store(0)
}

// took is called when it has.
func (s *slot) took(size int) {
	s.size = uint32(size)
	s.phase.Store(phaseTaken)
}

// done notes the answer, which is in s.answer.
func (s *slot) done(size int) {
	s.answerSize = uint32(size)
	s.phase.Store(phaseDone)
}

// reserve notes by which handle a request waits for a lock of k.
func (s *slot) reserve(k locks.Key, h locks.HandleID) {
	if len(k.File) > keySpace {
		return // then it is asked for by another one
	}
	s.reserved.Store(0)
	s.class, s.keySize = uint32(k.Class), uint32(copy(s.key[:], k.File))
	s.reserved.Store(uint64(h))
}

// enters notes that this thread is in a notification to the kernel, until it calls
// left: see Ended.
func (m *Requests) enters() (left func()) {
	tid := uint32(unix.Gettid())
	for i := range m.h.notifying {
		if x := &m.h.notifying[i]; x.Load() == 0 && x.CompareAndSwap(0, tid) {
			return func() { x.Store(0) }
		}
	}
	return func() {} // then the next process waits until it is over
}
