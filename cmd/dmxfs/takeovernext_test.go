package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/process"
)

// ready is the process that is to go on if the daemon of a mount is killed, as soon as it
// is there and has begun.
func (m *testMount) ready() (pid int) {
	m.c.t.Helper()
	await(m.c.t, "a process waits to go on", func() bool {
		list := m.allWaiting()
		if len(list) > 1 {
			m.c.t.Fatalf("several processes wait: %v", list)
		}
		if len(list) == 1 {
			pid = list[0]
		}
		return len(list) == 1
	})
	return pid
}

// allWaiting are the processes of a mount that wait to go on.
func (m *testMount) allWaiting() (list []int) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		m.c.t.Fatal(err)
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || string(comm) != process.WaitsName+"\n" || !alive(pid) {
			continue
		}
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && slices.Contains(strings.Split(string(line), "\x00"), m.dir) {
			list = append(list, pid)
		}
	}
	return list
}

// A process waits to go on before the daemon is killed, and it is that one which does. One
// that was killed while it waited is done without, and one that is asked to end is no
// daemon that does. None outlives the mount.
func TestTheNextDaemonWaits(t *testing.T) {
	t.Parallel()
	m := newCluster(t, 1, "--takeover").mounts[0]
	m.mayTakeOver()
	defer m.cutsOff()()
	for range 2 {
		next := m.ready()
		m.killed(unix.SIGKILL)
		if got := m.daemon(); got != next {
			t.Errorf("process %d goes on, %d has waited for that", got, next)
		}
		if comm := read(t, fmt.Sprintf("/proc/%d/comm", next)); comm != process.Name+"\n" {
			t.Errorf("the daemon is called %q", comm)
		}
	}
	for _, by := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
		next := m.ready()
		if err := unix.Kill(next, by); err != nil {
			t.Fatal(err)
		}
		await(t, "it has ended", func() bool { return !alive(next) })
		m.killed(unix.SIGKILL)
	}
	daemon, next := m.daemon(), m.ready()
	m.c.run("unmount", m.dir)
	if !m.ended([]int{daemon, next, m.watcher}) || len(m.allWaiting()) > 0 {
		t.Error("a process is left")
	}
}

// A process that waits to go on ends with the watcher. With the next watcher there is none,
// since the daemon has no keeper any more, until another daemon is started.
func TestTheNextDaemonEndsWithItsWatcher(t *testing.T) {
	t.Parallel()
	m := newCluster(t, 1, "--takeover").mounts[0]
	next := m.ready()
	m.killWatcher()
	await(t, "it has ended", func() bool { return !alive(next) })
	if list := m.allWaiting(); len(list) > 0 {
		t.Errorf("%v wait to go on with nothing", list)
	}
	old := m.daemon()
	m.signal(unix.SIGKILL)
	m.awaitNew(old)
	m.mayTakeOver()
	next = m.ready()
	m.killed(unix.SIGKILL)
	if got := m.daemon(); got != next {
		t.Errorf("process %d goes on, %d has waited for that", got, next)
	}
}

// After an upgrade it is a process of the new program that waits to go on.
func TestTheNextDaemonIsOfTheNewProgram(t *testing.T) {
	t.Parallel()
	m := newCluster(t, 1, "--takeover").mounts[0]
	m.mayTakeOver()
	old := m.ready()
	program := successorFile(t, "second")
	m.upgraded("--program", program)
	runs(t, "the watcher", m.watcher, program)
	await(t, "the one of the former program has ended", func() bool { return procState(old) == "" || parent(old) != m.watcher })
	m.mayTakeOver()
	next := m.ready()
	runs(t, "the one that waits", next, program)
	m.killed(unix.SIGKILL)
	if got := m.daemon(); got != next {
		t.Errorf("process %d goes on, %d has waited for that", got, next)
	}
	runs(t, "the daemon", m.daemon(), program)
}
