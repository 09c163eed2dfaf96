package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/supervise"
)

// Who cuts off a mount that is in use (umount -f) gets another one: what is dead
// and in its place for ever helps nobody. One that goes as well stays away.
func TestAMountThatIsCutOffIsServedAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	f, err := os.Create(filepath.Join(m.dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	old := m.daemon()
	if err := unix.Unmount(m.dir, unix.MNT_FORCE); err != unix.EBUSY {
		t.Fatalf("umount -f of a mount that is in use: %v", err)
	}
	m.awaitNew(old)
	if out, code := m.sh("flock -n f true"); code != 0 {
		t.Errorf("the new mount: %d %s", code, out)
	}

	pids := []int{m.daemon(), m.watcher}
	if f, err = os.Open(filepath.Join(m.dir, "f")); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Unmount(m.dir, unix.MNT_FORCE); err != unix.EBUSY {
		t.Fatalf("umount -f of a mount that is in use: %v", err)
	}
	if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if !m.ended(pids) || m.mounted() {
		t.Error("it was cut off and taken away, and is back")
	}
}

// The foreground's watcher goes on when nobody reads its log, and when its
// terminal is gone, and starts a daemon that dies anew. What it panics with is not
// the status of wrong options, upon which systemd would give up.
func TestAWatcherWhoseLogNobodyReads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	m := c.add()
	m.crashes = 1
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.cmd("mount", "--foreground", "--state", m.state, "--listen", "/ip4/127.0.0.1/tcp/0", c.src, m.dir)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	m.watcher = cmd.Process.Pid
	await(t, "it is mounted", func() bool { s, err := m.status(); return err == nil && s.Healthy })
	await(t, "the watcher can be found", func() bool { pid, err := supervise.WatcherOf(m.state); return err == nil && pid == m.watcher })
	r.Close()
	if err := cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	old := m.daemon()
	m.signal(unix.SIGHUP)
	m.signal(unix.SIGKILL)
	m.awaitNew(old)
	if pid := parent(m.daemon()); pid != cmd.Process.Pid {
		t.Errorf("the new daemon is a child of %d, want of the watcher %d", pid, cmd.Process.Pid)
	}
	if err := cmd.Process.Signal(unix.SIGABRT); err != nil { // which ends a program in Go like a panic
		t.Fatal(err)
	}
	err = cmd.Wait()
	if s, ok := cmd.ProcessState.Sys().(interface{ Signaled() bool }); !ok || !s.Signaled() {
		t.Errorf("a watcher that crashes ends with %v", err)
	}
	await(t, "there is another watcher", func() bool {
		pid, err := supervise.WatcherOf(m.state)
		m.watcher = pid
		return err == nil && pid != 0 && pid != cmd.Process.Pid
	})
}
