package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// A mount that was taken away does not come back, whatever goes wrong at its end.
func TestAnUnmountIsFinal(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	pids := []int{m.daemon(), m.watcher}
	if err := os.RemoveAll(m.state); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(m.dir, 0); err != nil {
		t.Fatal(err)
	}
	if !m.ended(pids) {
		t.Error("the watcher goes on")
	}
	if m.mounted() {
		t.Error("it is mounted again")
	}
}

// The dead mount of a watcher that waits for its storage was taken away by umount(8):
// the watcher can be ended all the same.
func TestUnmountEndsAWatcherThatWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	// The daemon writes to it meanwhile.
	await(t, ".dmxfs is removed", func() bool { return os.RemoveAll(c.src+"/.dmxfs") == nil })
	pids := []int{m.daemon(), m.watcher}
	m.signal(unix.SIGKILL)
	m.waiting("no cluster is here")
	if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	c.run("unmount", m.dir)
	if !m.ended(pids) {
		t.Error("the watcher goes on")
	}
	if _, err := c.try("unmount", m.dir); code(err) != exitcode.NoMount {
		t.Errorf("when nothing is left: %v", err)
	}
}

// A mount that has to wait, for a member that does not answer, can be given up.
func TestAMountThatWaitsIsInterrupted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	a, b := c.mounts[0], c.add()
	a.signal(unix.SIGSTOP)
	defer a.signal(unix.SIGCONT)
	cmd := c.cmd("--state", b.state, "--listen", "/ip4/127.0.0.1/tcp/0", c.src, b.dir)
	ended := make(chan error, 1)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- cmd.Wait() }()
	await(t, "it has begun", func() bool {
		_, err := os.Stat(filepath.Join(b.state, "dmxfs.log"))
		return err == nil
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(stderr.String(), "is not mounted") {
			t.Errorf("%v: %s", err, stderr.String())
		}
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Fatal("it waits on")
	}
	if b.mounted() || b.daemon() != 0 {
		t.Error("it is mounted after all")
	}
}

// A command that finds no state of a mount that is there says why that may be.
func TestMountOfAnotherHome(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	cmd := c.cmd("status", c.mounts[0].dir)
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != exitcode.NoMount || !strings.Contains(string(out), "another HOME or XDG_STATE_HOME") {
		t.Errorf("%v: %s", err, out)
	}
}
