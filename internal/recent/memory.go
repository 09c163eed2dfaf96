package recent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/boottime"
)

// Kind is what a change does to a name.
type Kind uint8

const (
	Gains  Kind = iota + 1 // there is none, and then there is one
	Loses                  // there is one, and then there is none
	Gets                   // there is one then
	Swaps                  // there is one before and then
	Alters                 // nothing: it is about the content of a file
)

// Outcome is what has come of a change.
type Outcome uint8

const (
	Unchanged Outcome = iota // nothing
	Changed
	Unknown // nobody knows
)

const (
	cells    = 1024
	entries  = 1 << 15
	files    = 1 << 16
	noteSize = 64 << 10
	page     = 4096

	magic   = 0x746e_6365_7278_6d64 // dmxrcent
	version = 2
)

// shared is the memory.
type shared struct {
	head
	_     [page - unsafe.Sizeof(head{})]byte
	cells [cells]noted
	log   [entries]noted
	files [files]atomic.Int64 // when a file whose number falls here was last changed
	notes [2]note
}

type head struct {
	magic, version uint64
	lastID         atomic.Uint64
	logged         atomic.Uint64 // so many were written to the log
	// since is when it began; lost is the time of the last change that is not in it any more.
	since, lost atomic.Int64
	untracked   atomic.Int64  // changes that are under way, and for which there was no cell
	note        atomic.Uint64 // which of the notes counts: one, plus one
}

// noted is a change of one name. It counts if id is not 0, which is written last.
type noted struct {
	id         atomic.Uint64
	name       Name
	begin, end int64
	kind       Kind
	sure       bool
	left       bool // of a process that is dead, which was known at end; and not decided
}

type note struct {
	size uint32
	text [noteSize]byte
}

// Memory is what was changed lately. It is safe for concurrent use by one process; of several
// that have one memory, one after the other uses it.
type Memory struct {
	fd int
	s  *shared

	mu   sync.Mutex
	free []uint16
}

// Now is the time by which changes are told, that of CLOCK_BOOTTIME in ns.
func Now() int64 { return boottime.Nanoseconds() }

// New makes memory that ends with the process.
func New() (*Memory, error) {
	mem, err := unix.Mmap(-1, 0, int(unsafe.Sizeof(shared{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("memory for changes: %w", err)
	}
	return begin(-1, mem), nil
}

// Create makes memory that outlives the process, if another one has its descriptor. It is
// closed by execve(2).
func Create() (*Memory, error) {
	fail := func(err error) (*Memory, error) { return nil, fmt.Errorf("memory for changes: %w", err) }
	fd, err := unix.MemfdCreate("dmxfs-recent", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fail(err)
	}
	// All of it is taken from the kernel now, so that no access fails later.
	if err = unix.Fallocate(fd, 0, 0, int64(unsafe.Sizeof(shared{}))); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	var mem []byte
	if err == nil {
		mem, err = mmap(fd)
	}
	if err != nil {
		unix.Close(fd)
		return fail(err)
	}
	return begin(fd, mem), nil
}

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

func mmap(fd int) ([]byte, error) {
	return unix.Mmap(fd, 0, int(unsafe.Sizeof(shared{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func begin(fd int, mem []byte) *Memory {
	m := &Memory{fd: fd, s: (*shared)(unsafe.Pointer(&mem[0]))}
	m.s.version = version
	m.s.since.Store(Now())
	m.s.lastID.Store(rand.Uint64() >> 1) // so that nobody takes a change of one memory for one of another
	for i := range m.s.cells {
		m.free = append(m.free, uint16(len(m.s.cells)-1-i))
	}
	atomic.StoreUint64(&m.s.magic, magic)
	return m
}

// Open goes on with the memory of a process that does nothing any more. What it had under way
// stays so until [Memory.Decide]. fd belongs to the result, unless there is an error.
func Open(fd int) (*Memory, error) {
	fail := func(err error) (*Memory, error) {
		return nil, fmt.Errorf("what the daemon that was killed had changed: %w", err)
	}
	has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		return fail(err)
	}
	if has&seals != seals || has&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 || st.Size != int64(unsafe.Sizeof(shared{})) {
		return fail(errors.New("it is no such memory"))
	}
	mem, err := mmap(fd)
	if err != nil {
		return fail(err)
	}
	m := &Memory{fd: fd, s: (*shared)(unsafe.Pointer(&mem[0]))}
	if atomic.LoadUint64(&m.s.magic) != magic || m.s.version != version {
		_ = unix.Munmap(mem)
		return fail(errors.New("it is of another version"))
	}
	m.goOn(Now())
	return m, nil
}

// goOn takes what is noted, by a process that was dead at now.
func (m *Memory) goOn(now int64) {
	if m.s.untracked.Load() != 0 {
		m.forgets(now)
		m.s.untracked.Store(0)
	}
	for i := range m.s.cells {
		c := &m.s.cells[i]
		id := c.id.Load()
		if id == 0 {
			m.clear(uint16(i))
			continue
		}
		if e := m.inLog(id); e != nil { // it was about to be cleared
			if at := m.s.logged.Load(); e == &m.s.log[at%entries] {
				m.s.logged.Store(at + 1)
			}
			m.clear(uint16(i))
			continue
		}
		if !c.left { // of the last process, not of one before it
			c.end = max(now, c.begin)
			c.left = true
		}
	}
}

// inLog is the entry of a change; nil if there is none.
func (m *Memory) inLog(id uint64) *noted {
	for i := range m.s.log {
		if e := &m.s.log[i]; e.id.Load() == id {
			return e
		}
	}
	return nil
}

// WasMade reports whether the process before has noted that the change with this number was
// made, though not where it belongs.
func (m *Memory) WasMade(id uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.inLog(id)
	return id != 0 && e != nil && e.sure
}

// FD is the descriptor of memory that outlives the process.
func (m *Memory) FD() int { return m.fd }

// Close lets go of the descriptor. The memory itself stays in use until the process ends.
func (m *Memory) Close() error {
	if m.fd < 0 {
		return nil
	}
	return unix.Close(m.fd)
}

// Under is a change that is under way. The zero value is none that is noted.
type Under struct {
	ID   uint64
	cell uint16
}

// Begin notes that a change of a name is about to be made.
func (m *Memory) Begin(n *Name, k Kind) (u Under) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := len(m.free) - 1
	if last < 0 {
		m.s.untracked.Add(1)
		return u
	}
	u = Under{m.s.lastID.Add(1), m.free[last]}
	m.free = m.free[:last]
	c := &m.s.cells[u.cell]
	c.name, c.kind, c.begin, c.left = *n, k, 0, false
	if k != Alters { // of which only the end is of interest
		c.begin = Now()
	}
	c.id.Store(u.ID)
	return u
}

// End notes what has come of it.
func (m *Memory) End(u Under, o Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u.ID == 0 {
		m.forgets(Now())
		m.s.untracked.Add(-1)
		return
	}
	c := &m.s.cells[u.cell]
	if o != Unchanged {
		m.append(c, c.begin, Now(), o == Changed)
	}
	m.clear(u.cell)
}

// forgets: nothing is complete that begins at t or before. REQUIRES: mu held.
func (m *Memory) forgets(t int64) { m.s.lost.Store(max(t, m.s.lost.Load())) }

// REQUIRES: mu held.
func (m *Memory) clear(cell uint16) {
	m.s.cells[cell].id.Store(0)
	m.free = append(m.free, cell)
}

// append notes that the change in c was made between two times. REQUIRES: mu held.
func (m *Memory) append(c *noted, begin, end int64, sure bool) {
	if c.kind == Alters {
		f := m.file(c.name.Dir)
		f.Store(max(end, f.Load()))
		return
	}
	at := m.s.logged.Load()
	e := &m.s.log[at%entries]
	if e.id.Load() != 0 {
		m.forgets(e.end)
	}
	e.id.Store(0)
	e.name, e.kind, e.begin, e.end, e.sure = c.name, c.kind, begin, end, sure
	e.id.Store(c.id.Load())
	m.s.logged.Store(at + 1)
}

func (m *Memory) file(number uint64) *atomic.Int64 {
	number ^= number >> 32
	number *= 0x9e3779b97f4a7c15
	return &m.s.files[number>>48%files]
}

// Adopt is called by a process that goes on: ids are the changes that the one before had
// begun, and which this one decides ([Memory.Decide]). What has become of all others that were
// under way nobody will know.
func (m *Memory) Adopt(ids []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.s.cells {
		c := &m.s.cells[i]
		id := c.id.Load()
		if id == 0 || !c.left || slices.Contains(ids, id) {
			continue
		}
		m.append(c, c.begin, c.end, false)
		m.clear(uint16(i))
	}
}

// Decide notes what has come of a change that a process before this one had begun. made: it was
// made by that. Otherwise it may have been, and undone since. Who makes it again begins it anew.
func (m *Memory) Decide(id uint64, made bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.s.cells {
		c := &m.s.cells[i]
		if id == 0 || c.id.Load() != id {
			continue
		}
		m.append(c, c.begin, c.end, made)
		m.clear(uint16(i))
	}
}

// Note is what was noted by [Memory.SetNote]; nil: nothing.
func (m *Memory) Note() []byte {
	at := m.s.note.Load()
	if at != 1 && at != 2 {
		return nil
	}
	n := &m.s.notes[at-1]
	return slices.Clone(n.text[:min(n.size, noteSize)])
}

// SetNote keeps a text with the memory, in place of the one before. One goroutine at a time
// calls it.
func (m *Memory) SetNote(b []byte) error {
	if len(b) > noteSize {
		return fmt.Errorf("%d bytes are too many to be kept with what was changed", len(b))
	}
	at := m.s.note.Load()%2 + 1
	n := &m.s.notes[at-1]
	n.size = uint32(copy(n.text[:], b))
	m.s.note.Store(at)
	return nil
}
