package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// version is that of the form. Every change of what is said in doc.go raises it.
const version = 1

// The errors of Open, and of who finds no room.
var (
	ErrVersion    = errors.New("the tables in memory have another form")
	ErrGeneration = errors.New("the tables in memory are of another generation")
	ErrDamaged    = errors.New("the tables in memory are damaged")
	ErrFull       = errors.New("the tables in memory are not complete")
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Spec is the form of a table.
type Spec struct {
	Words int // of a record
	Texts int // so many of them, the first ones, are texts or 0
	Max   int // records
}

// Form is that of all tables. Who opens them has to have the same.
type Form struct {
	// Version is that of what the records mean.
	Version uint32
	Tables  []Spec
	// Texts is how many texts there may be of each size; 0: DefaultTexts.
	Texts int
}

// Bounds of a Form, so that all places can be computed without care.
const (
	maxTables = 32
	maxWords  = 256
	maxTexts  = 8
	maxSlots  = 1 << 26
)

// DefaultTexts is how many texts of one size there may be.
const DefaultTexts = 1 << 20

const (
	page     = 4096
	headSize = page / 8 // in words, as all that follows
	maxWhy   = 1024     // bytes of why it is full
)

// The words of the head.
const (
	headMagic = iota
	headVersion
	headForm
	headGeneration
	headSum // of those above
	headEra
	headFull // 0, or it is
	headWhyLen
	headTops = 16 // of tables, then of texts
	headWhy  = headTops + maxTables + len(sizes)
)

const magic = 0x6c62_7478_666d_64 // dmfxtbl

// Tables are tables in memory.
type Tables struct {
	fd     int
	mem    []byte
	w      []uint64 // mem
	era    uint64
	tables []table
	texts  texts
	locked bool
	full   error
}

// table is what the process knows of a table.
type table struct {
	Spec
	number uint64
	place  area
	stride int      // words of a slot
	free   []uint32 // slots below the top that are free, but for those from fresh on
	fresh  uint32   // the slots from here to the top are free
}

// area is a part of the memory that grows: slots below top have been prepared.
type area struct {
	at, stride int // words
	max        uint32
	top        uint32
	headTop    int // the word of the head that has top
	taken      int // words from at that have been taken from the kernel
}

// layout is where everything lies, and how large the memory is, in words.
func (f *Form) layout() (tables []table, texts texts, size int, err error) {
	if len(f.Tables) > maxTables {
		return nil, texts, 0, fmt.Errorf("%d tables are too many", len(f.Tables))
	}
	at := headSize
	place := func(stride, most, top int) area {
		a := area{at: at, stride: stride, max: uint32(most), headTop: top}
		at += (stride*most + page/8 - 1) / (page / 8) * (page / 8)
		return a
	}
	for i, s := range f.Tables {
		if s.Words < 1 || s.Words > maxWords || s.Texts < 0 || s.Texts > min(maxTexts, s.Words) || s.Max < 1 || s.Max > maxSlots {
			return nil, texts, 0, fmt.Errorf("table %d cannot be made: %+v", i, s)
		}
		stride := 1 + 2*(1+s.Words)
		tables = append(tables, table{Spec: s, number: uint64(i), stride: stride, place: place(stride, s.Max, headTops+i)})
	}
	most := f.Texts
	if most == 0 {
		most = DefaultTexts
	}
	if most < 1 || most > maxSlots {
		return nil, texts, 0, fmt.Errorf("%d texts cannot be kept", most)
	}
	for i, size := range sizes {
		texts.class[i].area = place(size/8, max(1, most/textShare[i]), headTops+maxTables+i)
	}
	return tables, texts, at, nil
}

// sum is a number for the form as such.
func (f *Form) sum() uint64 {
	w := []uint64{uint64(f.Version), uint64(f.Texts), uint64(len(f.Tables))}
	for _, s := range f.Tables {
		w = append(w, uint64(s.Words), uint64(s.Texts), uint64(s.Max))
	}
	return uint64(check(magic, w))
}

// Create makes memory with empty tables, which are closed by execve(2). The name is
// for people (/proc/PID/fd), and generation tells these tables from others.
func Create(name string, generation uint64, f Form) (*Tables, error) {
	tables, texts, size, err := f.layout()
	if err != nil {
		return nil, err
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &lim) == nil && lim.Cur < uint64(size)*8 {
		return nil, fmt.Errorf("memory for tables: %d bytes are more than the limit of the size of files", size*8)
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory for tables: %w", err)
	}
	t := &Tables{fd: fd, era: firstEra, tables: tables, texts: texts, locked: true}
	if err := t.make(size, generation, &f); err != nil {
		t.Close()
		return nil, fmt.Errorf("memory for tables: %w", err)
	}
	return t, nil
}

// firstEra is the era of tables that were never void.
const firstEra = 1

// seals of the memory: its size stays.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

func (t *Tables) make(size int, generation uint64, f *Form) error {
	if err := unix.Ftruncate(t.fd, int64(size)*8); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(t.fd), unix.F_ADD_SEALS, seals); err != nil {
		return err
	}
	if err := t.mmap(size); err != nil {
		return err
	}
	if err := t.take(0, headSize); err != nil {
		return err
	}
	for i := range t.tables {
		t.setTop(&t.tables[i].place, 0)
	}
	for i := range t.texts.class {
		t.setTop(&t.texts.class[i].area, 0)
	}
	t.setEra(t.era)
	t.w[headVersion], t.w[headForm], t.w[headGeneration] = version, f.sum(), generation
	t.w[headSum] = t.headSum()
	atomic.StoreUint64(&t.w[headMagic], magic)
	return nil
}

func (t *Tables) headSum() uint64 {
	return uint64(check(magic, t.w[headVersion:headSum]))
}

func (t *Tables) mmap(size int) (err error) {
	t.mem, err = unix.Mmap(t.fd, 0, size*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		t.w = unsafe.Slice((*uint64)(unsafe.Pointer(&t.mem[0])), size)
	}
	return err
}

// take has the kernel give the memory of n words from at, which cannot fail to be
// there then. It would rather not see them swapped out.
func (t *Tables) take(at, n int) error {
	from, to := at*8/page*page, ((at+n)*8+page-1)/page*page
	for {
		err := unix.Fallocate(t.fd, 0, int64(from), int64(to-from))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if t.locked && unix.Mlock(t.mem[from:to]) != nil {
		t.locked = false // RLIMIT_MEMLOCK: it does without
	}
	return nil
}

// Locked reports whether all of the memory stays in memory.
func (t *Tables) Locked() bool { return t.locked }

// FD is the descriptor of the memory.
func (t *Tables) FD() int { return t.fd }

// Generation is what Create was given.
func (t *Tables) Generation() uint64 { return t.w[headGeneration] }

// Close lets go of the memory, which lives on as long as there is another descriptor.
func (t *Tables) Close() error {
	var err error
	if t.mem != nil {
		err = unix.Munmap(t.mem)
	}
	t.mem, t.w = nil, nil
	return errors.Join(err, unix.Close(t.fd))
}

// Clear makes all records void, at one moment.
func (t *Tables) Clear() {
	t.setEra(t.era + 1)
	for i := range t.tables {
		t.tables[i].free, t.tables[i].fresh = nil, 0
	}
	t.texts.clear()
}

// Renew is Clear, and undoes SetFull after that: whoever was killed in between has left
// tables that are void.
func (t *Tables) Renew() {
	t.Clear()
	t.full = nil
	atomic.StoreUint64(&t.w[headFull], 0)
	t.w[headWhyLen] = 0
}

func (t *Tables) setEra(era uint64) {
	t.era = era
	t.seal(headEra, uint32(era))
}

// SetFull marks the tables as not complete, until Renew, as after an error of Put, Set and
// Text, who do so themselves: who opens them is told so, and why. It may have happened
// before: the first reason stays.
func (t *Tables) SetFull(why string) {
	if t.full != nil {
		return
	}
	t.full = fmt.Errorf("%w: %s", ErrFull, why)
	n := copy(t.mem[headWhy*8:headWhy*8+maxWhy], why)
	t.w[headWhyLen] = uint64(n)
	atomic.StoreUint64(&t.w[headFull], 1)
}

// Full is an error after SetFull.
func (t *Tables) Full() error { return t.full }

// fails is SetFull, for who returns an error.
func (t *Tables) fails(format string, args ...any) error {
	t.SetFull(fmt.Sprintf(format, args...))
	return t.full
}

// seal stores a number of 32 bits with its check in a word of the head.
func (t *Tables) seal(at int, v uint32) {
	atomic.StoreUint64(&t.w[at], uint64(v)|uint64(headCheck(at, v))<<32)
}

// sealed is the inverse of seal.
func (t *Tables) sealed(at int) (uint32, bool) {
	w := atomic.LoadUint64(&t.w[at])
	return uint32(w), uint32(w>>32) == headCheck(at, uint32(w))
}

func headCheck(at int, v uint32) uint32 { return mix(magic^uint64(at)<<32, uint64(v)) }

func (t *Tables) setTop(a *area, top uint32) {
	a.top = top
	t.seal(a.headTop, top)
}

// grow makes slots of a usable: init prepares each of them.
func (t *Tables) grow(a *area, init func(slot uint32)) error {
	const step = 64 << 10 / 8
	if a.top == a.max {
		return fmt.Errorf("there are %d already", a.max)
	}
	more := min(uint32(max(1, step/a.stride)), a.max-a.top)
	if want := int(a.top+more) * a.stride; want > a.taken {
		if err := t.take(a.at+a.taken, want-a.taken); err != nil {
			return fmt.Errorf("the kernel gives no memory: %w", err)
		}
		a.taken = want
	}
	for i := a.top; i < a.top+more; i++ {
		init(i)
	}
	t.setTop(a, a.top+more)
	return nil
}

// Clock is the time since the machine was started, by which one process can say when
// something was to the next one. It stands still while the machine sleeps, as that of
// package time.
func (t *Tables) Clock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // it cannot
	}
	return time.Duration(ts.Nano())
}

// check is a checksum of w. It changes with every word and its place.
func check(seed uint64, w []uint64) uint32 {
	const k0, k1, k2 = 0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb
	a, b := seed^k0, uint64(len(w))^k1
	for len(w) >= 4 {
		h, l := bits.Mul64(w[0]^a^k1, w[1]^k2)
		a = h ^ l ^ bits.RotateLeft64(a, 23)
		h, l = bits.Mul64(w[2]^b^k2, w[3]^k0)
		b = h ^ l ^ bits.RotateLeft64(b, 29)
		w = w[4:]
	}
	for _, x := range w {
		h, l := bits.Mul64(x^a^k0, b^k2)
		a, b = h^l, bits.RotateLeft64(b, 31)+x
	}
	return mix(a, b)
}

func mix(a, b uint64) uint32 {
	h, l := bits.Mul64(a^0xff51_afd7_ed55_8ccd, b^0xc4ce_b9fe_1a85_ec53)
	h, l = bits.Mul64(h^a^0x9e37_79b9_7f4a_7c15, l^b^0xd6e8_feb8_6659_fd93)
	return uint32(h^l) ^ uint32((h^l)>>32)
}
