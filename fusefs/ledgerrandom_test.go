package fusefs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/shm"
)

// Three programs work while their servers are killed at random points, and each knows
// what it has to find.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	kills := tests.Or(4, 30)
	m := mountKept(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	writeFile(t, m.backing("count"), "000000")
	var stop atomic.Bool
	done := make(chan error, 3)
	counts := [2]int{}
	for i := range counts {
		p := startProgram(t, m.dir, nil)
		fd := p.open("count", "rw")
		go func() { done <- countUnderLock(p, fd, &stop, &counts[i]) }()
	}
	p := startProgram(t, m.dir, nil)
	log := p.open("log", "rw,creat,append")
	go func() { done <- makeAndRemove(p, log, &stop, rand.New(rand.NewPCG(seed, 2))) }()
	for range kills {
		m.crashAt(Crash{Where: points[r.IntN(len(points))], After: int32(r.IntN(40))})
		m.succeeded()
	}
	stop.Store(true)
	m.within("the programs end", func() {
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	want := fmt.Sprintf("%06d", counts[0]+counts[1])
	if b, err := os.ReadFile(m.backing("count")); err != nil || string(b) != want {
		t.Errorf("it was counted to %s, want %s (%v)", b, want, err)
	}
	t.Logf("counted to %s", want)
}

// does is p.do for a goroutine that is not the test's.
func does(p *testProgram, format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		return "", err
	}
	line, err := p.out.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// wants is does with an outcome that is known.
func wants(p *testProgram, want, format string, args ...any) error {
	got, err := does(p, format, args...)
	if err == nil && got != want {
		err = fmt.Errorf("%s: %s, want %s", fmt.Sprintf(format, args...), got, want)
	}
	return err
}

// countUnderLock adds one to a number in a file, again and again, under a lock.
func countUnderLock(p *testProgram, fd int, stop *atomic.Bool, count *int) error {
	for !stop.Load() {
		if err := wants(p, "ok", "flock %d ex", fd); err != nil {
			return err
		}
		s, err := does(p, "read %d 0 6", fd)
		if err != nil {
			return err
		}
		var n int
		if _, err := fmt.Sscanf(s, "ok %d", &n); err != nil {
			return fmt.Errorf("read: %s: %w", s, err)
		}
		*count++
		if err := errors.Join(wants(p, "ok", "write %d 0 %06d", fd, n+1), wants(p, "ok", "flock %d un", fd)); err != nil {
			return err
		}
	}
	return nil
}

// makeAndRemove makes names, and takes them away, and writes a log of that.
func makeAndRemove(p *testProgram, log int, stop *atomic.Bool, r *rand.Rand) error {
	written := ""
	for i := 0; !stop.Load(); i++ {
		name := fmt.Sprintf("r%d", i)
		var err error
		step := func(want, format string, args ...any) {
			if err == nil {
				err = wants(p, want, format, args...)
			}
		}
		switch r.IntN(4) {
		case 0:
			step("ok", "mkdir %s 0700", name)
			step("EEXIST", "mkdir %s 0700", name)
			step("ok", "rmdir %s", name)
			step("ENOENT", "rmdir %s", name)
		case 1:
			step("ok", "put %s %s", name, name)
			step("ok", "rename %s %s.to", name, name)
			step("ENOENT", "cat %s", name)
			step("ok "+name, "cat %s.to", name)
			step("ok", "link %s.to %s", name, name)
			step("ok", "unlink %s.to", name)
			step("ok", "truncate %s 1", name)
			step("ok r", "cat %s", name)
			step("ok", "unlink %s", name)
		case 2:
			step("ok", "symlink to %s", name)
			step("ok", "unlink %s", name)
		case 3:
			written += name
			step("ok", "write %d 0 %s", log, name)
			step("ok", "fsync %d", log)
			step("ok "+written[max(0, len(written)-20):], "read %d %d 20", log, max(0, len(written)-20))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// madeUp is a ledger with whatever records.
type madeUp map[int][][]uint64

func (l madeUp) String(ref uint64) string { return strings.Repeat("x", int(ref%100)) }
func (l madeUp) All(table int) iter.Seq2[uint32, []uint64] {
	return func(yield func(uint32, []uint64) bool) {
		for i, w := range l[table] {
			if !yield(uint32(i+1), w) {
				return
			}
		}
	}
}

// Whatever is in the memory, it is an error or it is consistent, and no more.
func TestDamagedLedgers(t *testing.T) {
	t.Parallel()
	requests, err := NewRequests(3)
	must(t, err)
	defer requests.Close()
	r := rand.New(rand.NewPCG(1, 2))
	none := func(int) (int, error) { return -1, nil }
	for range tests.Or(300, 3000) {
		l := madeUp{}
		for table, form := range LedgerForm {
			for range 1 + r.IntN(min(form.Max, 4)) {
				w := make([]uint64, form.Words)
				for i := range w {
					w[i] = [...]uint64{0, 1, 2, r.Uint64(), r.Uint64N(1 << 40), 1<<64 - 1}[r.IntN(6)]
				}
				l[table] = append(l[table], w)
			}
		}
		if _, err := readMountLedger(l, requests, none); err == nil {
			t.Fatal("a mount without a descriptor")
		}
	}
	if _, err := readMountLedger(madeUp{}, requests, none); !errors.Is(err, ErrLedger) {
		t.Errorf("an empty one: %v", err)
	}
}

// The same of requests.
func TestDamagedRequests(t *testing.T) {
	t.Parallel()
	open := func(m *Requests, generation uint64) (*Requests, error) {
		fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
		must(t, err)
		x, err := OpenRequests(fd, generation)
		if err != nil {
			unix.Close(fd)
		}
		return x, err
	}
	for i, damage := range []func(m *Requests, s *slot){
		func(m *Requests, s *slot) { m.h.magic++ },
		func(m *Requests, s *slot) { m.h.version++ },
		func(m *Requests, s *slot) { m.h.generation++ },
		func(m *Requests, s *slot) { m.h.elsewhere.Add(1) },
		func(m *Requests, s *slot) { m.h.tops[smallArea].Store(smallSlots + 1) },
		func(m *Requests, s *slot) { m.h.tops[largeArea].Store(1 << 31) },
		func(m *Requests, s *slot) { s.phase.Store(9) },
		func(m *Requests, s *slot) { s.phase.Store(2<<phaseBits | phaseBegun) },
		func(m *Requests, s *slot) { s.size++ },
		func(m *Requests, s *slot) { head(s.data).Length = 1 << 31 },
		func(m *Requests, s *slot) { head(s.data).Length = 3 },
		func(m *Requests, s *slot) { s.done(15) },
		func(m *Requests, s *slot) { s.done(1 << 20) },
		func(m *Requests, s *slot) { s.done(16) },
		func(m *Requests, s *slot) { s.reserved.Store(1); s.keySize = 1 << 30 },
		func(m *Requests, s *slot) { s.reserved.Store(1); s.class = 77 },
		func(m *Requests, s *slot) { s.steps[0].n = -1; s.phase.Store(phaseMade) },
		func(m *Requests, s *slot) { s.steps[0].errno = 1 << 20; s.phase.Store(phaseMade) },
		func(m *Requests, s *slot) { s.steps[1].was.size = -1; s.phase.Store(1<<phaseBits | phaseBegun) },
	} {
		m, err := NewRequests(3)
		must(t, err)
		s, ok := m.take(smallArea)
		if !ok {
			t.Fatal("no slot")
		}
		s.reads()
		*head(s.data) = fuse.InHeader{Length: uint32(headSize), Opcode: opGetAttr, Unique: 12, NodeId: 1}
		s.took(headSize)
		if x, err := open(m, 3); err != nil {
			t.Errorf("before damage %d: %v", i, err)
		} else if left, _, err := x.leftOf(func(fd int) int { return fd }); err != nil || len(left) != 1 {
			t.Errorf("before damage %d: %d requests, %v", i, len(left), err)
		} else {
			x.Close()
		}
		damage(m, &s)
		x, err := open(m, 3)
		if err == nil {
			_, _, err = x.leftOf(func(fd int) int { return fd })
			x.Close()
		}
		if !errors.Is(err, ErrLedger) {
			t.Errorf("damage %d: %v", i, err)
		}
		m.Close()
	}
	if _, err := OpenRequests(int(os.Stdin.Fd()), 3); !errors.Is(err, ErrLedger) {
		t.Errorf("standard input: %v", err)
	}
}

// BenchmarkBesideLedger measures what a ledger costs a request: what is done for one
// with it, and what is not done without. The times are those of one run.
func BenchmarkBesideLedger(b *testing.B) {
	tables, err := shm.Create("tables", 1, ledgerForm())
	must(b, err)
	b.Cleanup(func() { tables.Close() })
	requests, err := NewRequests(1)
	must(b, err)
	b.Cleanup(func() { requests.Close() })
	for _, with := range []bool{false, true} {
		f := handlersOnly(b)
		c := newConnOf(f, &fuse.MountOptions{Logger: slog.NewLogLogger(f.log.Handler(), slog.LevelWarn)})
		f.conn = c
		if with {
			c.requests = requests
			f.ledger, err = newLedger(f.base, &Ledger{tables, requests})
			must(b, err)
			f.tree.ledger, f.procs.ledger = f.ledger, f.ledger
			f.ledger.beginTree(f.tree)
		}
		writeFile(b, f.opts.Root.Name()+"/f", "content")
		id := f.lookupForTest(b, "f")
		n := f.tree.get(id)
		var st unix.Stat_t
		must(b, unix.Fstat(n.fd, &st))
		name := map[bool]string{false: "without", true: "with"}[with]
		request := func(op uint32, size int, serve func(in []byte, s *slot)) func(b *testing.B) {
			return func(b *testing.B) {
				r := &reader{}
				unique := uint64(0)
				for b.Loop() {
					p := newPlace(c, r)
					in := p.in[:size]
					unique += 2
					head(in).Length, head(in).Opcode, head(in).Unique = uint32(size), op, unique
					in = p.settle(c, r, in)
					r.slot, r.request = p.slot, unique
					c.readers.serving[unique] = r
					if out := p.slot.answersIn(op != opRead); out != nil {
						serve(in, &p.slot)
						binary.NativeEndian.PutUint32(out, 16)
						p.slot.notes(c, in, 16)
					} else {
						serve(in, &p.slot)
					}
					delete(c.readers.serving, unique)
					p.leave(c, r)
				}
			}
		}
		b.Run("getattr/"+name, request(opGetAttr, 56, func([]byte, *slot) {}))
		b.Run("read/"+name, request(opRead, 80, func([]byte, *slot) { n.notePages() }))
		b.Run("lookup/"+name, request(opLookup, 60, func([]byte, *slot) { f.tree.seen(f.tree.root, "f", &st) }))
		b.Run("write/"+name, request(opWrite, 4096+writeHead, func(in []byte, s *slot) {
			ch := &change{in: head(in), op: "write"}
			t := f.fence.track(ch)
			_ = f.fence.do(&t, ch, &admission{}, func() error { return nil })
		}))
	}
}
