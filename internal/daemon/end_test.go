package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/statedir"
)

// What hangs in the storage when a daemon ends goes on with the shared directory,
// which it knows by the number of a descriptor. So the next daemon must not take
// the one that ends for dead.
func TestWhatHangsOutlivesADaemonsEnd(t *testing.T) {
	t.Parallel()
	root, path, state := openState(t)
	defer state.Close()
	d := &daemon{root: root, state: state}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if err := syncfs(root); err != nil {
		t.Errorf("after the daemon's end: %v", err)
	}
	if next, err := statedir.Open(path, int(root.Fd())); exitcode.Of(err) != exitcode.Busy {
		t.Errorf("the state directory is free before the process ends: %v, %v", next, err)
	}
}

// umount(8) does not wait for the end of the daemon: who mounts again at once does.
func TestMountAgainAtOnce(t *testing.T) {
	t.Parallel()
	root, path, former := openState(t)
	opened := make(chan error, 1)
	go func() {
		next, err := statedir.Open(path, int(root.Fd()))
		if err == nil {
			err = next.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("while the former daemon has the state directory: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := former.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// openState opens a shared directory, until the end of the test, and makes a state
// directory for it, at path.
func openState(t *testing.T) (root *os.File, path string, state *statedir.Dir) {
	t.Helper()
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	path = filepath.Join(t.TempDir(), "state")
	if state, err = statedir.Open(path, int(root.Fd())); err != nil {
		t.Fatal(err)
	}
	return root, path, state
}
