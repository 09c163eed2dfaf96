package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/supervise"
)

// The watcher is killed, again and again: the daemon has another one at once,
// which logs for it, starts it anew when it is killed as well, and ends with it.
func TestAWatcherThatIsKilledIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--log-waits", "200ms")
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("append", "flock", "f", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("f") > 100 })
	daemon := a.daemon()
	for range 3 {
		a.killWatcher()
	}
	if a.daemon() != daemon {
		t.Fatal("the daemon is another one")
	}
	await(t, "all is well", func() bool { s, err := a.status(); return err == nil && s.Healthy })
	size := c.size("f")
	await(t, "the holder writes on", func() bool { return c.size("f") > size+100 })

	// What is logged from now on is not lost.
	wait := a.helper("take", "flock", "f")
	await(t, "the log tells of a wait", func() bool {
		return strings.Contains(a.log(), fmt.Sprintf("pid=%d", wait.cmd.Process.Pid))
	})
	wait.signal(unix.SIGKILL)

	// The new watcher starts a new daemon.
	a.signal(unix.SIGKILL)
	a.awaitNew(daemon)
	c.awaitMembers(2)
	hold.ends("the holder, whose lock is lost")
	if out, code := b.sh("flock -n f true"); code != 0 {
		t.Errorf("the lock is held still: %d %s", code, out)
	}
	if got := parent(a.daemon()); got != a.watcher {
		t.Errorf("the new daemon is a child of %d, want of the watcher %d", got, a.watcher)
	}

	// Both end by unmount, and by SIGTERM to the watcher.
	a.killWatcher()
	pids := []int{a.daemon(), a.watcher}
	c.run("unmount", a.dir)
	if !a.ended(pids) {
		t.Error("unmount has left processes behind")
	}
	a.mount()
	a.killWatcher()
	pids = []int{a.daemon(), a.watcher}
	if err := unix.Kill(a.watcher, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !a.ended(pids) || a.mounted() {
		t.Error("SIGTERM to a watcher that has adopted its daemon does not unmount")
	}
	c.awaitMembers(1)
}

// killWatcher kills the watcher and waits until there is another one.
func (m *testMount) killWatcher() {
	m.c.t.Helper()
	m.endWatcher(unix.SIGKILL)
}

// endWatcher ends the watcher by a signal and waits until there is another one.
func (m *testMount) endWatcher(by unix.Signal) {
	m.c.t.Helper()
	old := m.watcher
	if err := unix.Kill(old, by); err != nil {
		m.c.t.Fatal(err)
	}
	await(m.c.t, "there is another watcher", func() bool {
		pid, err := supervise.WatcherOf(m.state)
		m.watcher = pid
		return err == nil && pid != 0 && pid != old
	})
}

// Without a watcher, and while none can be started, status says so, and what is
// logged gets to its file all the same.
func TestStatusTellsOfAWatcherThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--log-waits", "200ms", "--takeover=false") // else who waits to go on watches
	m := c.mounts[0]
	hold := m.helper("hold", "flock", "f")
	m.held("f", 1)
	pid := m.daemon()
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	// It can open no file more.
	files, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(files)) + 3, Max: limit.Max}, nil); err != nil {
		t.Fatal(err)
	}
	old := m.watcher
	if err := unix.Kill(old, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "status says that there is none", func() bool {
		s, err := m.status()
		return err == nil && !s.Healthy && len(s.Problems) == 1 && strings.Contains(s.Problems[0], "no process watches the daemon")
	})
	await(t, "the log says so, too", func() bool {
		return strings.Contains(m.log(), "no process watches this daemon")
	})
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	await(t, "there is one again", func() bool {
		now, err := supervise.WatcherOf(m.state)
		m.watcher = now
		return err == nil && now != 0 && now != old
	})
	await(t, "all is well", func() bool { s, err := m.status(); return err == nil && s.Healthy })
	hold.signal(unix.SIGKILL)
}
