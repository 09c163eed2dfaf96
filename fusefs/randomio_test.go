package fusefs

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

var (
	flagSeed  = flag.Uint64("fusefs.seed", 1, "the first seed of TestRandomIO")
	flagSeeds = flag.Uint64("fusefs.seeds", tests.Or(uint64(1), 2), "how many seeds TestRandomIO tries of each kind")
	flagCalls = flag.Int("fusefs.calls", 1500, "how many calls TestRandomIO makes for each seed")
)

// Random calls on one file, through handles of several kinds and through
// mappings, beside another host that has the file in between: each read, here
// and there, finds what was written last.
func TestRandomIO(t *testing.T) {
	for _, kind := range []struct {
		name    string
		lock    bool // by flock(2); otherwise the open locks protect the file
		caching bool
	}{{"flock", true, false}, {"flock, the client caches", true, true}, {"open", false, false}, {"open, the client caches", false, true}} {
		t.Run(kind.name, func(t *testing.T) {
			m := mount(t, longTTL, func(c *childConfig) {
				c.Rule = &Rule{Open: true, Yield: time.Millisecond}
				c.Caching = kind.caching
			})
			for seed := *flagSeed; seed < *flagSeed+*flagSeeds; seed++ {
				d := &randomIO{m: m, t: t, r: rand.New(rand.NewPCG(seed, 0)), name: fmt.Sprint("f", seed), lock: kind.lock}
				writeFile(t, m.path(d.name), "")
				d.run(*flagCalls)
				if t.Failed() {
					t.Logf("again with -fusefs.seed %d -fusefs.seeds 1; the last calls:", seed)
					for _, line := range d.log[max(0, len(d.log)-40):] {
						t.Log(line)
					}
					return
				}
			}
		})
	}
}

// randomIO is one run: a file, and what is in it.
type randomIO struct {
	m    *testMount
	t    *testing.T
	r    *rand.Rand
	name string
	lock bool
	want []byte
	fds  []*ioHandle
	log  []string
}

type ioHandle struct {
	fd             int
	direct, append bool
	mapped         []byte
}

const (
	ioLargest = 300_000 // to begin with; appending makes files larger
	ioMapped  = 3 * ioLargest
	ioBlock   = 4096
)

func (d *randomIO) sayf(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf(format, args...))
}

func (d *randomIO) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Errorf("%s: %v", d.log[len(d.log)-1], err)
	}
}

func (d *randomIO) run(calls int) {
	defer func() {
		for len(d.fds) > 0 {
			d.close(0)
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			d.t.Errorf("%s: %v", d.log[len(d.log)-1], r)
		}
	}()
	d.open()
	d.hold()
	between := 150
	if !d.lock {
		between = 600 // an open lock gives way within a second
	}
	for range calls {
		if d.t.Failed() {
			return
		}
		if d.r.IntN(between) == 0 {
			d.release()
			d.elsewhere()
			d.hold()
		}
		d.call()
	}
	d.release()
	d.elsewhere()
}

// hold and release are what a program does around what it does with the file.
// Who uses a mapping looks how long the file is first.
func (d *randomIO) hold() {
	if d.lock {
		d.sayf("flock")
		d.must(unix.Flock(d.fds[0].fd, unix.LOCK_EX))
	}
	d.stat(d.fds[d.r.IntN(len(d.fds))])
}

func (d *randomIO) release() {
	if d.lock {
		d.sayf("unlock")
		d.must(unix.Flock(d.fds[0].fd, unix.LOCK_UN))
	}
}

// elsewhere is the other host: it must find what was written, and changes it.
func (d *randomIO) elsewhere() {
	class := locks.Open
	if d.lock {
		class = locks.Flock
	}
	drop := d.m.remote(d.name, class, locks.Write)
	defer drop()
	path := d.m.backing(d.name)
	d.sayf("elsewhere")
	got, err := os.ReadFile(path)
	d.must(err)
	d.compare("the other host", got, 0, d.want)
	switch d.r.IntN(3) {
	case 0:
		size := d.r.IntN(ioLargest)
		d.sayf("elsewhere: truncate to %d", size)
		d.must(os.Truncate(path, int64(size)))
		d.resize(size)
	case 1:
		off, b := d.piece()
		d.sayf("elsewhere: write %d at %d", len(b), off)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		d.must(err)
		_, err = f.WriteAt(b, int64(off))
		d.must(err)
		f.Close()
		d.put(off, b)
	}
}

func (d *randomIO) resize(size int) {
	if size <= len(d.want) {
		d.want = d.want[:size:size]
		return
	}
	d.want = append(d.want, make([]byte, size-len(d.want))...)
}

func (d *randomIO) put(off int, b []byte) {
	d.resize(max(len(d.want), off+len(b)))
	copy(d.want[off:], b)
}

// piece is something to write somewhere.
func (d *randomIO) piece() (off int, b []byte) {
	off = d.r.IntN(ioLargest)
	if d.r.IntN(3) == 0 {
		off = min(off, len(d.want)) // makes no hole
	}
	b = bytes.Repeat([]byte{byte(1 + d.r.IntN(255))}, 1+d.r.IntN(min(40_000, ioLargest-off)))
	for i := 0; i < len(b); i += 1 + d.r.IntN(5000) {
		b[i] = byte(d.r.IntN(256))
	}
	return off, b
}

func (d *randomIO) open() {
	h := &ioHandle{direct: d.r.IntN(3) == 0, append: d.r.IntN(5) == 0}
	flags := unix.O_RDWR | unix.O_CLOEXEC
	if h.direct {
		flags |= unix.O_DIRECT
	}
	if h.append {
		flags |= unix.O_APPEND
	}
	if d.r.IntN(6) == 0 {
		flags |= unix.O_DSYNC
	}
	d.sayf("open %#x", flags)
	var err error
	if h.fd, err = unix.Open(d.m.path(d.name), flags, 0); err != nil {
		d.t.Fatal(err)
	}
	if d.r.IntN(2) == 0 {
		d.sayf("map")
		h.mapped, err = unix.Mmap(h.fd, 0, ioMapped, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		d.must(err)
	}
	d.fds = append(d.fds, h)
}

func (d *randomIO) close(i int) {
	h := d.fds[i]
	d.fds = append(d.fds[:i:i], d.fds[i+1:]...)
	if h.mapped != nil && d.r.IntN(2) == 0 {
		d.must(unix.Close(h.fd))
		d.must(unix.Munmap(h.mapped))
		return
	}
	if h.mapped != nil {
		d.must(unix.Munmap(h.mapped))
	}
	d.must(unix.Close(h.fd))
}

// aligned is memory and a range that direct I/O takes.
func (d *randomIO) aligned(off, n int) (int, []byte) {
	off, n = off/ioBlock*ioBlock, (n+ioBlock-1)/ioBlock*ioBlock
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	d.must(err)
	return off, b
}

// call makes one call.
func (d *randomIO) call() {
	i := d.r.IntN(len(d.fds))
	h := d.fds[i]
	switch n := d.r.IntN(100); {
	case n < 25:
		d.write(h)
	case n < 50:
		d.read(h)
	case n < 62 && h.mapped != nil && len(d.want) > 0:
		off, b := d.piece()
		if off %= len(d.want); off+len(b) > len(d.want) {
			b = b[:len(d.want)-off]
		}
		d.sayf("%d: write %d at %d of the mapping", h.fd, len(b), off)
		copy(h.mapped[off:], b)
		copy(d.want[off:], b)
	case n < 74 && h.mapped != nil && len(d.want) > 0:
		off := d.r.IntN(len(d.want))
		end := off + d.r.IntN(len(d.want)-off) + 1
		d.sayf("%d: read %d at %d of the mapping", h.fd, end-off, off)
		d.compare("the mapping", h.mapped[off:end], off, d.want[off:end])
	case n < 78 && h.mapped != nil:
		d.sayf("%d: msync", h.fd)
		d.must(unix.Msync(h.mapped, unix.MS_SYNC))
	case n < 82:
		size := d.r.IntN(ioLargest)
		d.sayf("%d: truncate to %d", h.fd, size)
		if d.r.IntN(2) == 0 {
			d.must(unix.Ftruncate(h.fd, int64(size)))
		} else {
			d.must(unix.Truncate(d.m.path(d.name), int64(size)))
		}
		d.resize(size)
	case n < 86:
		off, b := d.piece()
		d.sayf("%d: punch %d at %d", h.fd, len(b), off)
		d.must(unix.Fallocate(h.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(len(b))))
		if off < len(d.want) {
			clear(d.want[off:min(off+len(b), len(d.want))])
		}
	case n < 89:
		off, b := d.piece()
		d.sayf("%d: allocate %d at %d", h.fd, len(b), off)
		d.must(unix.Fallocate(h.fd, 0, int64(off), int64(len(b))))
		d.resize(max(len(d.want), off+len(b)))
	case n < 92:
		d.stat(h)
	case n < 94:
		d.sayf("%d: fsync", h.fd)
		d.must(unix.Fsync(h.fd))
	case n < 96 && h.direct:
		d.sayf("%d: not direct any more", h.fd)
		flags, err := unix.FcntlInt(uintptr(h.fd), unix.F_GETFL, 0)
		d.must(err)
		_, err = unix.FcntlInt(uintptr(h.fd), unix.F_SETFL, flags&^unix.O_DIRECT)
		d.must(err)
		h.direct = false
	case n < 98 && len(d.fds) < 5:
		d.open()
	case len(d.fds) > 1 && i > 0: // the first one has the lock
		d.sayf("%d: close", h.fd)
		d.close(i)
	}
}

func (d *randomIO) stat(h *ioHandle) {
	var st unix.Stat_t
	d.sayf("%d: fstat", h.fd)
	d.must(unix.Fstat(h.fd, &st))
	if st.Size != int64(len(d.want)) {
		d.t.Errorf("the size is %d, want %d", st.Size, len(d.want))
	}
}

func (d *randomIO) write(h *ioHandle) {
	off, b := d.piece()
	if h.direct {
		from, mem := d.aligned(off, len(b))
		defer unix.Munmap(mem)
		for i := range mem {
			mem[i] = b[i%len(b)]
		}
		off, b = from, mem
	}
	if h.append {
		if off = len(d.want); h.direct && off%ioBlock != 0 || off+len(b) > 2*ioLargest {
			return
		}
	}
	d.sayf("%d: write %d at %d", h.fd, len(b), off)
	n, err := unix.Pwrite(h.fd, b, int64(off))
	d.must(err)
	if n != len(b) {
		d.t.Errorf("%d bytes of %d were written", n, len(b))
	}
	d.put(off, b)
}

func (d *randomIO) read(h *ioHandle) {
	off, n := d.r.IntN(ioLargest), 1+d.r.IntN(60_000)
	b := make([]byte, n)
	if h.direct {
		off, b = d.aligned(off, n)
		defer unix.Munmap(b)
	}
	d.sayf("%d: read %d at %d", h.fd, len(b), off)
	n, err := unix.Pread(h.fd, b, int64(off))
	d.must(err)
	var want []byte
	if off < len(d.want) {
		want = d.want[off:min(off+len(b), len(d.want))]
	}
	d.compare("read", b[:max(n, 0)], off, want)
}

func (d *randomIO) compare(who string, got []byte, off int, want []byte) {
	d.t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	d.t.Errorf("%s: %d bytes at %d, want %d; they differ at %d", who, len(got), off, len(want), off+i)
}
