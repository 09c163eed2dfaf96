package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/supervise"
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

// A process that is to wait for its turn ends as soon as it is asked to, also while it begins.
func TestTheNextDaemonIsEndedWhileItBegins(t *testing.T) {
	t.Parallel()
	for _, by := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		cmd := exec.Command("/proc/self/exe", supervise.ServeCommand, "/nowhere")
		cmd.Env = append(os.Environ(), asMain+"=1", supervise.WaitsEnv+"=1")
		in, err := cmd.StdinPipe() // on which its configuration does not come
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(patienceOfTests/2, func() { _ = cmd.Process.Kill() })
		await(t, "it has its name", func() bool {
			return read(t, fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid)) == process.WaitsName+"\n"
		})
		_ = cmd.Process.Signal(by)
		_ = cmd.Wait() // it says how by itself
		late.Stop()
		in.Close()
		if got := cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != by {
			t.Errorf("asked by %v, it ended by %v", by, got)
		}
	}
}

// The watcher is killed, again and again. The process that waits to go on watches in its place,
// and the daemon, which does not notice, can be killed, upgraded and ended as ever.
func TestTheNextDaemonWatchesInPlaceOfTheWatcher(t *testing.T) {
	t.Parallel()
	m := newCluster(t, 1, "--takeover").mounts[0]
	defer m.cutsOff()()
	hold := m.helper("append", "flock", "held", "x", "0")
	m.held("held", 1)
	for range 2 {
		m.mayTakeOver()
		daemon := m.daemon()
		for range 2 {
			next := m.ready()
			m.killWatcher()
			if m.watcher != next || m.daemon() != daemon {
				t.Errorf("the watcher is %d, and %d has waited; the daemon is %d, and was %d", m.watcher, next, m.daemon(), daemon)
			}
		}
		next := m.ready()
		m.killed(unix.SIGKILL)
		if got := m.daemon(); got != next {
			t.Errorf("process %d goes on, %d has waited for that", got, next)
		}
	}
	m.ready()
	m.killWatcher()
	m.upgraded()
	m.killed(unix.SIGKILL)
	m.ready()
	m.killWatcher()
	if hold.ended() {
		t.Error(hold.out.String())
	}
	m.nothingLost(3)
	hold.signal(unix.SIGKILL)
	hold.ends("the holder")
	pids := append(m.keeperPIDs(), m.daemon(), m.watcher, m.ready())
	m.c.run("unmount", m.dir)
	if !m.ended(pids) {
		t.Error("a process is left after unmount")
	}
	m.mount()
	m.ready()
	m.killWatcher()
	pids = append(m.keeperPIDs(), m.daemon(), m.watcher, m.ready())
	if err := unix.Kill(m.watcher, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !m.ended(pids) || m.mounted() {
		t.Error("SIGTERM to the watcher does not unmount")
	}
}

// The watcher is killed when the daemon is dead already, and it has not told the next one that
// it is its turn. That one watches in its place, and another one goes on.
func TestTakeoverWithoutAWatcher(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, withTakeover()...)
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("append", "flock", "held", "x", "0")
	a.held("held", 1)
	for range 2 {
		a.livesOn()
		before, next, old, watcher := a.mayTakeOver(), a.ready(), a.daemon(), a.watcher
		stop := a.cutsOff()
		_ = unix.Kill(watcher, unix.SIGSTOP)
		await(t, "the watcher stands still", func() bool { return standsStill(watcher) })
		_ = unix.Kill(old, unix.SIGKILL)
		await(t, "the daemon is dead", func() bool { return !alive(old) })
		_ = unix.Kill(watcher, unix.SIGKILL)
		a.awaitNew(old)
		stop()
		if x := a.takeover(); x.Count != before.Count+1 {
			t.Fatalf("nobody has gone on: %+v\n%s", x, a.log())
		}
		var err error
		if a.watcher, err = supervise.WatcherOf(a.state); err != nil || a.watcher != next || parent(a.daemon()) != next {
			t.Errorf("the watcher is %d, %v, and %d has waited; the daemon is a child of %d", a.watcher, err, next, parent(a.daemon()))
		}
		b.blockedTry(t, "held")
		size := c.size("held")
		await(t, "the holder writes on", func() bool { return hold.ended() || c.size("held") > size+20 })
	}
	if hold.ended() {
		t.Fatal(hold.out.String())
	}
	a.nothingLost(2)
	await(t, "there is one keeper", func() bool { return a.keepers() == 1 })
}

// If no process that waits can be started, as when descriptors or processes are short, that
// is tried again until one is there.
func TestTheNextDaemonIsStartedWhenThatCanBe(t *testing.T) {
	t.Parallel()
	m := newCluster(t, 1, "--takeover").mounts[0]
	m.mayTakeOver()
	next := m.ready()
	var limit unix.Rlimit
	if err := unix.Prlimit(m.watcher, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(m.watcher, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}, nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(next, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the log says that there is none", func() bool {
		return strings.Contains(m.log(), "no process is ready to go on")
	})
	if err := unix.Prlimit(m.watcher, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
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
