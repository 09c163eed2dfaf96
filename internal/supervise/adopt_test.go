package supervise

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/process"
)

// A watcher whose daemon has ended while it began sends no signals to what is its
// parent by then.
func TestAdopted(t *testing.T) {
	for pid, want := range map[int]bool{os.Getppid(): true, os.Getpid(): false} {
		t.Setenv(daemonEnv, strconv.Itoa(pid))
		p, err := adopted()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(unix.Signal(0)); (err == nil) != want {
			t.Errorf("a signal to process %d, the parent is %d: %v", pid, os.Getppid(), err)
		}
		if process.Dying(p.Pid) || os.Getenv(daemonEnv) != "" {
			t.Errorf("process %d is dying, or the programs of a watcher know its daemon: %q", p.Pid, os.Getenv(daemonEnv))
		}
	}
	if _, err := adopted(); err == nil {
		t.Error("a watcher that no daemon has started")
	}
}
