package main

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
)

// The daemon has died, and the process that would start it anew is stopped: commands
// say so, and what to do, and unmount ends both.
func TestDeathBesideAStoppedWatcher(t *testing.T) {
	t.Parallel()
	t.Run("takeover", func(t *testing.T) { deathBesideAStoppedWatcher(t, "--takeover") })
	t.Run("anew", func(t *testing.T) { deathBesideAStoppedWatcher(t, "--takeover=false") })
}

func deathBesideAStoppedWatcher(t *testing.T, takeover string) {
	c := newCluster(t, 1, takeover)
	m := c.mounts[0]
	daemon := m.daemon()
	if err := unix.Kill(m.watcher, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "the watcher stands still", func() bool { return standsStill(m.watcher) })
	m.signal(unix.SIGKILL)
	await(t, "the daemon has ended", func() bool { return !alive(daemon) })
	want, wantCode, patience := fmt.Sprintf("stopped: kill -CONT %d", m.watcher), exitcode.NoMount, "30s"
	if takeover == "--takeover" { // the calls wait for the next daemon
		wantCode, patience = exitcode.Failure, "1s"
	} else {
		await(t, "the mount is dead", func() bool { return mountpoint.IsDead(m.dir) })
	}
	for _, command := range []string{"status", "locks"} {
		_, err := c.try(command, "--timeout", patience, m.dir)
		if code(err) != wantCode || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want exit number %d and %q", command, err, wantCode, want)
		}
	}
	if takeover == "--takeover" {
		_ = unix.Kill(m.watcher, unix.SIGCONT)
		m.awaitNew(daemon)
	}
	pids := []int{m.watcher}
	c.run("unmount", m.dir)
	if !m.ended(pids) || m.mounted() {
		t.Error("it is mounted still, or its watcher has not ended")
	}
}
