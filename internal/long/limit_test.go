package long

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watched is a test that hangs.
type watched struct {
	testing.TB
	said   chan string
	failed atomic.Bool
}

func (w *watched) Name() string                { return "TestThatHangs" }
func (w *watched) Errorf(string, ...any)       { w.failed.Store(true) }
func (w *watched) Cleanup(func())              {}
func (w *watched) Write(b []byte) (int, error) { w.said <- string(b); return len(b), nil }

// What belongs to a test that takes too long is killed, whether or not it stands
// still, and nothing else.
func TestLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hangs := &watched{TB: t, said: make(chan string, 1)}
	w := watch(hangs, filepath.Join(dir, "1"))
	w.out = hangs
	defer w.stop()
	start := func(in string, env ...string) *exec.Cmd {
		c := exec.Command("sleep", "1000")
		c.Dir, c.Env = filepath.Join(dir, in), append(os.Environ(), env...)
		if err := os.MkdirAll(c.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	inside, other := start("1/a"), start("12")
	stopped := start("2", "WHERE="+filepath.Join(dir, "1"))
	if err := stopped.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.Allow(time.Millisecond)
	for _, c := range []*exec.Cmd{inside, stopped} {
		if err := c.Wait(); err == nil {
			t.Errorf("%s ended by itself", c)
		}
	}
	said := <-hangs.said
	for _, want := range []string{"TestThatHangs takes longer than 1ms", fmt.Sprintf("\n%d sleep 1000", inside.Process.Pid), fmt.Sprintf("\n%d sleep 1000", stopped.Process.Pid), "long.TestLimit"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in:\n%s", want, said)
		}
	}
	if err := other.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("a process of another test: %v", err)
	}
	_ = other.Process.Kill()
	_ = other.Wait()
}

// A mount whose daemon does not answer holds up the test itself, in a call that
// nothing else ends.
func TestLimitCutsMountsOff(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "m")
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(dev)
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = unix.Mount("nothing", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev))
	}
	switch {
	case err == nil:
	case os.Getenv("DMXFS_TEST_REQUIRE_MOUNTS") != "":
		t.Fatal(err)
	default:
		t.Skip("needs to mount by FUSE:", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	hangs := &watched{TB: t, said: make(chan string, 1)}
	w := watch(hangs, dir)
	w.out = hangs
	defer w.stop()
	w.Allow(time.Millisecond)
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
		t.Error("there is a file on a mount without a daemon")
	}
	if said, want := <-hangs.said, "\n"+dir+"\n"; !strings.Contains(said, want) {
		t.Errorf("%q is not in:\n%s", want, said)
	}
}
