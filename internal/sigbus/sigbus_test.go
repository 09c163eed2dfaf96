//go:build linux && amd64

package sigbus

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const childEnv = "DMXFS_SIGBUS_TEST"

// TestMain is also a process that ends by SIGBUS.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	if err := Guard(); err != nil {
		panic(err)
	}
	if os.Getenv(childEnv) == "low" {
		readLow()
	} else if err := sendBack(); err != nil {
		panic(err)
	}
	select {}
}

// sendBack sends SIGBUS to the thread that sends it. Another one could be in the Go
// runtime and have a lock that the runtime needs to tell of the signal.
func sendBack() error {
	runtime.LockOSThread()
	return unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGBUS)
}

// readLow reads a page that there is not, where pages of the program are.
func readLow() {
	fd, err := unix.MemfdCreate("empty", unix.MFD_CLOEXEC)
	if err != nil {
		panic(err)
	}
	low := uintptr(0x200000000)
	at := *(*unsafe.Pointer)(unsafe.Pointer(&low))
	b, err := unix.MmapPtr(fd, 0, at, 4096, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		panic(err)
	}
	fmt.Println(*(*byte)(b))
}

// beyond is a mapping of a file that has become empty.
func beyond(t *testing.T, pages int) []byte {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, pages*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Goroutines write to pages that there are not, and read some, and go on: each
// page is counted once.
func TestFaultsAreSurvived(t *testing.T) {
	if err := Guard(); err != nil {
		t.Fatal(err)
	}
	const pages, each = 64, 8
	before := Faults()
	var all sync.WaitGroup
	for i := range each {
		b := beyond(t, pages)
		all.Go(func() {
			for p := range pages {
				if p%2 == 0 {
					b[p*4096+i] = byte(p + 1)
				}
				want := byte(0)
				if p%2 == 0 {
					want = byte(p + 1)
				}
				if got := b[p*4096+i]; got != want {
					t.Errorf("page %d has %d, want %d", p, got, want)
				}
			}
		})
	}
	all.Wait()
	if n := Faults() - before; n != pages*each {
		t.Errorf("%d faults, want %d", n, pages*each)
	}
}

// What is no such fault is for the runtime.
func TestOtherSignalsEndTheProcess(t *testing.T) {
	for _, what := range []string{"sent", "low"} {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), childEnv+"="+what)
		out, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "SIGBUS") || !strings.Contains(string(out), "goroutine ") {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
	}
}
