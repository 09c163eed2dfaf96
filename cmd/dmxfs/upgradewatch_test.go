package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// runs waits until a process runs a program.
func runs(t *testing.T, what string, pid int, program string) {
	t.Helper()
	await(t, what+" runs "+program, func() bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err == nil && exe == program
	})
}

// The watcher becomes the new program as well, in its own process, also one that has
// adopted its daemon; and it does all that it did before.
func TestUpgradeOfTheWatcher(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover=false")
	m := c.mounts[0]
	hold := m.helper("append", "flock", "f", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("f") > 20 })
	daemon, watcher := m.daemon(), m.watcher
	followed := 0
	follows := func() {
		t.Helper()
		followed++
		await(t, "the log says that the watcher has followed", func() bool {
			return strings.Count(m.log(), "the process that watches the daemon is the new program, too") == followed
		})
	}
	for _, name := range []string{"second", "third"} {
		program := successorFile(t, name)
		m.upgraded("--program", program)
		runs(t, "the daemon", daemon, program)
		runs(t, "the watcher", watcher, program)
		follows()
		if parent(daemon) != watcher {
			t.Errorf("the daemon is a child of %d, not of its watcher %d", parent(daemon), watcher)
		}
	}
	m.killWatcher()
	fourth := successorFile(t, "fourth")
	m.upgraded("--program", fourth)
	runs(t, "the watcher that has adopted it", m.watcher, fourth)
	follows()
	if s, err := m.status(); err != nil || !s.Healthy || hold.ended() {
		t.Errorf("%+v, %v, %s", s, err, hold.out.String())
	}
	m.killWatcher()
	await(t, "all is well", func() bool { s, err := m.status(); return err == nil && s.Healthy })

	// If the daemon dies the next one is of that version, too.
	m.signal(unix.SIGKILL)
	m.awaitNew(daemon)
	runs(t, "the next daemon", m.daemon(), fourth)
	hold.ends("the holder, whose lock is lost")
	pids := []int{m.daemon(), m.watcher}
	m.upgraded()
	follows()
	if err := unix.Kill(m.watcher, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !m.ended(pids) || m.mounted() {
		t.Error("SIGTERM to the watcher does not unmount")
	}
}
