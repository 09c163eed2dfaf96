package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/memory"
)

// Garbage may take more memory than the runtime allows by itself, and what makes room for it
// takes none.
func TestGarbageHasMoreMemory(t *testing.T) {
	if err := memory.Spare(garbageFrom); err != nil {
		t.Skip(err)
	}
	goal := func() int64 {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	var used [][]byte
	for range 64 {
		used = append(used, bytes.Repeat([]byte{1}, 1<<20))
	}
	clear(used) // its memory has been written to, and is what the object gets
	before := goal()
	g := garbage{spare: memory.Spare, log: slog.New(slog.DiscardHandler)}
	g.look()
	if len(g.unwritten) != garbageSize {
		t.Fatalf("it has %d bytes", len(g.unwritten))
	}
	// The goal is of the heap with the object. What else this test has in use may have shrunk.
	if more := goal() - before; more < 2*garbageSize-4<<20 {
		t.Errorf("the goal has grown by %d bytes", more)
	}
	in := make([]byte, garbageSize/os.Getpagesize())
	if err := mincore(g.unwritten, in); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(in, []byte{1}); n > 0 {
		t.Errorf("%d of its %d pages are in memory", n, len(in))
	}
	with := goal()
	g.spare = func(int64) error { return errors.New("short") }
	if g.look(); with-goal() < 2*garbageSize-4<<20 {
		t.Errorf("when it is dropped the goal goes from %d to %d", with, goal())
	}
}

// It is there while there is much memory, and goes when there is little.
func TestGarbageFollowsMemory(t *testing.T) {
	var free int64
	g := garbage{log: slog.New(slog.DiscardHandler), spare: func(bytes int64) error {
		if free < bytes {
			return errors.New("short")
		}
		return nil
	}}
	for _, c := range []struct {
		free int64 // MB
		want bool
	}{{100, false}, {200, false}, {300, true}, {200, true}, {100, false}, {200, false}, {256, true}} {
		free = c.free << 20
		if g.look(); g.unwritten != nil != c.want {
			t.Errorf("with %d MB it is there: %v", c.free, !c.want)
		}
	}
}

// It is looked again and again, until the mount ends; and not at all where the administrator has
// decided.
func TestGarbageIsFollowed(t *testing.T) {
	for name, want := range map[string]int{"": 4, "GOGC": 0, "GOMEMLIMIT": 0} {
		t.Setenv("GOGC", "")
		t.Setenv("GOMEMLIMIT", "")
		if name != "" {
			t.Setenv(name, "100")
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*garbageLook+time.Second)
			defer cancel()
			looked := 0
			garbage{spare: func(int64) error { looked++; return errors.New("short") }}.follow(ctx)
			if looked != want {
				t.Errorf("with %q: looked %d times", name, looked)
			}
		})
	}
}

// mincore tells by in which pages of b are in memory, see mincore(2).
func mincore(b, in []byte) error {
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&in[0]))); e != 0 {
		return e
	}
	return nil
}
