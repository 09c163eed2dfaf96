package supervise

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A lock that no process has, but an open file, names nobody who could be ended:
// -1 would be all processes.
func TestALockWithoutAProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, watcherFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	if pid, err := WatcherOf(dir); pid != 0 || err != nil {
		t.Errorf("%d, %v", pid, err)
	}
}
