package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
)

// An admin sees the other host's holder and this one's waiter while they hold
// and wait, and later, in the journals, the life of each request.
func TestAdminSeesWhoHoldsAndWhoWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	write(t, a.path("dir.txt"), "")
	hold := b.helper("hold", "fcntl", "dir.txt")
	b.held("dir.txt", 1)
	wait := a.helper("take", "fcntl", "dir.txt")
	a.blocked("dir.txt", 1)
	host, _ := os.Hostname()
	var holder, waiter admin.Lock
	// A program in Go that waits asks once more after a signal of its runtime, so a
	// list may find it between two calls.
	await(t, "a list shows who holds and who waits", func() bool {
		holder, waiter = admin.Lock{}, admin.Lock{}
		for _, l := range a.locks() {
			switch l.State {
			case "held":
				holder = l
			case "waiting":
				waiter = l
			}
		}
		return holder.PID != 0 && waiter.PID != 0 && len(waiter.WaitsFor) > 0
	})
	if holder.Path != "dir.txt" || holder.PID != hold.cmd.Process.Pid || holder.Host != host || holder.Command == "" ||
		holder.Mode != "W" || holder.Class != "posix" || holder.Node != b.peers().Self || holder.Token == 0 || holder.Algorithm != "rw" {
		t.Errorf("holder: %+v", holder)
	}
	if waiter.PID != wait.cmd.Process.Pid || waiter.Node != a.peers().Self || len(waiter.WaitsFor) != 1 ||
		waiter.WaitsFor[0].PID != holder.PID || waiter.WaitsFor[0].Node != holder.Node {
		t.Errorf("waiter: %+v", waiter)
	}
	for _, l := range b.locks() {
		if l.State == "waiting" && l.PID != waiter.PID {
			t.Errorf("b sees another waiter: %+v", l)
		}
	}
	await(t, "the journal tells of the wait", func() bool {
		return len(a.journal("--pid", fmt.Sprint(waiter.PID), "--event", "waiting")) == 1
	})
	hold.signal(unix.SIGKILL)
	if out, code := wait.wait(); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	check := func(m *testMount, pid int, want string) {
		t.Helper()
		await(t, "the journal has the end of the request", func() bool {
			rows := m.journal("--pid", fmt.Sprint(pid), "--path", "dir.txt", "--event", "released")
			return len(rows) > 0
		})
		var steps []string
		for _, r := range m.journal("--pid", fmt.Sprint(pid)) {
			if r.Class == "posix" {
				steps = append(steps, r.Event)
			}
		}
		if got := strings.Join(steps, " "); got != want {
			t.Errorf("%s: journal of %d: %s, want %s", m.dir, pid, got, want)
		}
	}
	for _, when := range []string{"while they run", "after a restart"} {
		t.Log(when)
		check(b, hold.cmd.Process.Pid, "requested granted released")
		check(a, wait.cmd.Process.Pid, "requested waiting granted released")
		if when == "while they run" {
			for _, m := range c.mounts {
				c.run("unmount", m.dir)
			}
			// Without a daemon the journal is read directly.
			check(b, hold.cmd.Process.Pid, "requested granted released")
			for _, m := range c.mounts {
				m.mount()
			}
		}
	}
}
