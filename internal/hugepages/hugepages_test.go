package hugepages

import (
	"context"
	"debug/elf"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/memory"
	"github.com/dmxfs/dmxfs/internal/process"
)

// server has more code than fits into a huge page.
var server = http.ListenAndServe

// zeroed is a variable without a value in the file.
var zeroed [4 << 20]byte

func has(s span, at uintptr) bool { return s.from <= at && at < s.to }

// needHugePages skips where there are none for who asks, or too little memory.
func needHugePages(t *testing.T) {
	t.Helper()
	if err := errors.Join(supported(), offered(), memory.Spare(enoughSpare)); err != nil {
		t.Skip(err)
	}
}

func self(t *testing.T) program {
	t.Helper()
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := layout(f)
	if err != nil {
		t.Skip(err)
	}
	return p
}

// The parts of a program are where its code, its types and its variables are.
func TestLayout(t *testing.T) {
	p := self(t)
	for what, s := range map[string]span{"code": p.code.span, "data": p.data.span, "variables": p.variables} {
		if s.from%pageSize != 0 || s.to%pageSize != 0 {
			t.Errorf("%s: %x to %x is not in whole huge pages", what, s.from, s.to)
		}
	}
	if at := reflect.ValueOf(deep).Pointer(); at < p.code.from {
		t.Errorf("the code %x to %x begins behind deep (%x)", p.code.from, p.code.to, at)
	}
	if middle := uintptr(unsafe.Pointer(&zeroed)) + pageSize; !has(p.variables, middle) {
		t.Errorf("the variables %x to %x have not one at %x", p.variables.from, p.variables.to, middle)
	}
	all, err := process.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]span{"r-xp": p.code.span, "r--p": p.data.span, "rw-p": p.variables} {
		if s.size() > 0 && !slices.ContainsFunc(all, func(m process.Mapping) bool {
			return m.From <= s.from && s.to <= m.To && m.Mode == what
		}) {
			t.Errorf("%x to %x is not mapped %s", s.from, s.to, what)
		}
	}
}

// A program goes on while its code is moved, and afterwards: it calls, collects garbage,
// moves stacks, panics and tells where.
func TestUse(t *testing.T) {
	needHugePages(t)
	p := self(t)
	if p.code.size() == 0 || server == nil {
		t.Fatal("the code of this test is in no huge page as a whole")
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				work(t)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	bytes, err := Use(t.Context())
	if err != nil && !errors.Is(err, unix.EAGAIN) { // the heap, while that is in use
		t.Error(err)
	}
	if want := p.code.size() + p.data.size(); bytes < want {
		t.Errorf("%d bytes are in huge pages, want %d at least", bytes, want)
	}
	work(t)
	close(stop)
	wg.Wait()
	// What is there already stays.
	if again, err := Use(t.Context()); err != nil && !errors.Is(err, unix.EAGAIN) || again < p.code.size() {
		t.Errorf("the second time: %d bytes (%v)", again, err)
	}
	work(t)
}

// work uses what needs all parts of a program.
func work(t *testing.T) {
	if n := deep(1000); n != 1000 {
		t.Errorf("%d calls, want 1000", n)
	}
	runtime.GC()
	func() {
		defer func() {
			if r := recover(); r == nil || !strings.Contains(string(debug.Stack()), "hugepages.work") {
				t.Errorf("recovered %v in\n%s", r, debug.Stack())
			}
		}()
		var none []int
		_ = none[len(os.Args)]
	}()
	if _, err := os.Stat("/"); err != nil {
		t.Error(err)
	}
}

// deep needs a large stack.
func deep(n int) int {
	var here [64]int
	here[n%64] = n
	if n == 0 {
		return 0
	}
	return deep(n-1) + here[n%64] - n + 1
}

// mapFile maps a file of several huge pages, without its first page, to a begin of huge pages.
func mapFile(t *testing.T, mode int) (*os.File, part, []byte) {
	t.Helper()
	const size = 2 * pageSize
	offset := int64(os.Getpagesize())
	name := filepath.Join(t.TempDir(), "file")
	b := make([]byte, offset+size)
	for i := range b {
		b[i] = byte(i >> 7)
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	at, err := reserve(size)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.MmapPtr(int(f.Fd()), offset, at, size, mode, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.MunmapPtr(at, size) })
	return f, part{span{uintptr(at), uintptr(at) + size}, offset}, unsafe.Slice((*byte)(at), size)
}

// own tells how much of s has no file behind it, and is in huge pages.
func own(t *testing.T, s span) (own, huge int) {
	t.Helper()
	all, err := process.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.From < s.to && s.from < m.To {
			own += m.Own
			huge += m.Huge
		}
	}
	return own, huge
}

func TestMove(t *testing.T) {
	needHugePages(t)
	f, p, b := mapFile(t, unix.PROT_READ)
	was := slices.Clone(b)
	if err := move(t.Context(), f, p); errors.Is(err, errNone) {
		t.Skip(err) // memory is in too many pieces
	} else if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b, was) {
		t.Error("the bytes are not those of before")
	}
	if own, huge := own(t, p.span); own != p.size() || huge == 0 {
		t.Errorf("%d bytes of its own, %d in huge pages, want %d", own, huge, p.size())
	}
}

// What is not as in its file, or may be written, is not moved, nor what cannot be read; and
// nothing is left of the try.
func TestNotMoved(t *testing.T) {
	f, p, b := mapFile(t, unix.PROT_READ|unix.PROT_WRITE)
	if err := move(t.Context(), f, p); err == nil || !strings.Contains(err.Error(), "mapped as") {
		t.Errorf("memory that can be written: %v", err)
	}
	if err := unix.Mprotect(b, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	before := mapped(t)
	if err := move(t.Context(), strings.NewReader("short"), p); !errors.Is(err, io.EOF) {
		t.Errorf("a file that has ended: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := move(over, f, p); !errors.Is(err, context.Canceled) {
		t.Errorf("when it is to end: %v", err)
	}
	if after := mapped(t); after > before+pageSize {
		t.Errorf("%d bytes are mapped, %d were", after, before)
	}
	if err := unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	b[pageSize+5] = 0xcc
	if err := unix.Mprotect(b, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	if err := move(t.Context(), f, p); err == nil || !strings.Contains(err.Error(), "traces") {
		t.Errorf("changed memory: %v", err)
	}
	if b[pageSize+5] != 0xcc {
		t.Error("the change is lost")
	}
	if own, _ := own(t, p.span); own >= pageSize {
		t.Errorf("%d bytes are of its own", own)
	}
	p.to += 64 * pageSize
	if err := move(t.Context(), f, p); err == nil {
		t.Error("more than what is mapped was moved")
	}
}

// mapped is how much memory without a file is mapped, in bytes.
func mapped(t *testing.T) (n int) {
	t.Helper()
	all, err := process.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.File == "" {
			n += int(m.To - m.From)
		}
	}
	return n
}

// Merged is what is in use; the rest costs no memory.
func TestMerge(t *testing.T) {
	needHugePages(t)
	at, err := reserve(2 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.MunmapPtr(at, 2*pageSize) })
	s := span{uintptr(at), uintptr(at) + 2*pageSize}
	b := unsafe.Slice((*byte)(at), s.size())
	const enough = 128 << 10
	for i := 0; i < enough; i += os.Getpagesize() {
		b[i] = byte(i>>12) + 1
	}
	b[pageSize] = 7
	if err := merge(t.Context(), s, enough); err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EAGAIN) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if own, huge := own(t, s); huge != pageSize || own != pageSize+os.Getpagesize() {
		t.Errorf("%d bytes in memory, %d in huge pages", own, huge)
	}
	for i := 0; i < enough; i += os.Getpagesize() {
		if b[i] != byte(i>>12)+1 {
			t.Fatalf("byte %d is %d", i, b[i])
		}
	}
}

// What was in the program's file is not dropped as if it was there still. It is tried in
// processes of their own, as it can be once in each.
func TestMoveBesideGivingBack(t *testing.T) {
	needHugePages(t)
	const env = "HUGEPAGES_TEST_GIVE_BACK"
	if os.Getenv(env) == "" {
		for range 3 {
			again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
			again.Env = append(os.Environ(), env+"=1")
			if out, err := again.CombinedOutput(); err != nil {
				t.Fatalf("%v: %.2000s", err, out)
			}
		}
		return
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				process.GiveBackMemory(slog.New(slog.DiscardHandler))
			}
		}
	})
	if _, err := Use(t.Context()); err != nil && !errors.Is(err, unix.EAGAIN) {
		t.Error(err)
	}
	work(t)
	close(done)
	wg.Wait()
	work(t)
}
