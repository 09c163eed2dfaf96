package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/journalview"
	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
)

// Tests of nodes that die, with real daemons. What is promised to users in
// seconds is measured and logged; a test fails only where the wrong thing
// happens, or nothing, since machines that run tests are slow at times.

// signal sends a signal to the daemon of the mount. Before SIGSTOP returns all
// of its threads stand still; kill(2) itself does not wait for that, and one of
// them could still answer what a test does next.
func (m *testMount) signal(s unix.Signal) {
	m.c.t.Helper()
	pid := m.daemon()
	if pid == 0 {
		m.c.t.Fatalf("%s has no daemon", m.dir)
	}
	if err := unix.Kill(pid, s); err != nil {
		m.c.t.Fatalf("signal %v to the daemon %d: %v", s, pid, err)
	}
	if s == unix.SIGSTOP {
		await(m.c.t, "the daemon stands still", func() bool { return standsStill(pid) })
	}
}

// standsStill reports whether no thread of a process runs, or could: one that is
// stuck in the storage does not.
func standsStill(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range threads {
		b, err := os.ReadFile(filepath.Join(dir, e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if strings.HasPrefix(rest, "R") || strings.HasPrefix(rest, "S") {
			return false
		}
	}
	return true
}

// awaitNew waits until a mount has another daemon, which is live.
func (m *testMount) awaitNew(old int) {
	m.c.t.Helper()
	await(m.c.t, m.dir+" has a new daemon", func() bool {
		if pid := m.daemon(); pid == 0 || pid == old {
			return false
		}
		s, err := m.status()
		return err == nil && s.State == "live" && s.PID != old
	})
}

// kill ends the daemon and its watcher, as when the machine dies.
func (m *testMount) kill() {
	m.c.t.Helper()
	pid := m.daemon()
	kill := func(p int, s unix.Signal) {
		if p > 1 {
			_ = unix.Kill(p, s)
		}
	}
	kill(m.watcher, unix.SIGSTOP) // either would start the other anew
	await(m.c.t, "the watcher stands still", func() bool { return standsStill(m.watcher) || !alive(m.watcher) })
	for _, next := range children(m.watcher) { // who waits to go on may not have its name yet
		if next != pid {
			kill(next, unix.SIGKILL)
		}
	}
	kill(pid, unix.SIGKILL)
	kill(m.watcher, unix.SIGKILL)
	await(m.c.t, "the killed daemon is gone", func() bool { return !alive(pid) && !alive(m.watcher) })
}

// lost checks that the journal of the mount has exactly one lost lock of a
// file, that of the process, and that the log names it.
func (m *testMount) lost(file string, pid int) {
	m.c.t.Helper()
	var rows []journalview.Row
	await(m.c.t, "the journal tells of the lost lock", func() bool {
		rows = m.journal("--event", "lost", "--path", file)
		return len(rows) > 0
	})
	if len(rows) != 1 || rows[0].PID != pid || rows[0].Command == "" || rows[0].Reason == "" {
		m.c.t.Errorf("the journal says of the lost lock: %+v; want one of process %d", rows, pid)
	}
	log := m.log()
	want := fmt.Sprintf(`path=%s class=flock mode=W pid=%d command=`, file, pid)
	if !strings.Contains(log, want) {
		m.c.t.Errorf("the log does not say %q", want)
	}
}

// A daemon is killed whose program holds a lock: its watcher starts it anew,
// the new one proves that the old one is dead, and a waiter elsewhere goes on.
func TestKilledDaemonIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, "--takeover=false")
	var took []time.Duration
	otherwise := map[uint64]string{} // how members went
	rounds := long.Or(4, 10)
	for i := range rounds {
		a, b := c.mounts[i%3], c.mounts[(i+1)%3]
		file := fmt.Sprintf("f%d", i)
		hold := a.helper("hold", "flock", file)
		a.held(file, 1)
		wait := b.helper("take", "flock", file)
		b.blocked(file, 1)
		old := a.daemon()
		a.signal(unix.SIGKILL)
		began := time.Now()
		if out, code := wait.wait(); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		took = append(took, time.Since(began))
		a.awaitNew(old)
		hold.signal(unix.SIGKILL)
		hold.ends("the holder")
		// The kernel tells of the last close of a program that has ended a moment later.
		if out, code := a.sh("echo again > " + file + "; flock -w 60 " + file + " true"); code != 0 {
			t.Errorf("the mount after its daemon was killed: %d %s", code, out)
		}
		a.lost(file, hold.cmd.Process.Pid)
		for _, r := range b.journal("--event", "leave") {
			if !strings.HasSuffix(r.Reason, "it was restarted") {
				otherwise[r.Epoch] = r.Reason
			}
		}
	}
	// Nobody had to wait for the end of a tenure; but for one that a very busy machine had start for
	// that long, and one that for that reason reached nobody, left, and came back.
	if len(otherwise) > rounds/4 {
		t.Errorf("members went: %v", otherwise)
	}
	slices.Sort(took)
	t.Logf("a waiter elsewhere went on after %v (median of %d, at most %v)", took[rounds/2], rounds, took[rounds-1])
}

// Without a restart the others wait until the dead node can't have tenure.
func TestKilledDaemonWithoutRestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, "--no-restart")
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("hold", "flock", "f")
	a.held("f", 1)
	wait := b.helper("take", "flock", "f")
	b.blocked("f", 1)
	a.signal(unix.SIGKILL)
	began := time.Now()
	if out, code := wait.wait(); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	t.Logf("a waiter elsewhere went on after %v", time.Since(began))
	await(t, "the watcher has ended", func() bool { return !alive(a.watcher) })
	// The dead mount stays in its place, and does not uncover anything.
	if !a.mounted() || !mountpoint.IsDead(a.dir) {
		t.Errorf("the mount of the killed daemon is not dead")
	}
	if _, err := a.status(); err == nil || !strings.Contains(err.Error(), "no dmxfs daemon answers") {
		t.Errorf("status of a dead mount: %v", err)
	}
	hold.signal(unix.SIGKILL)
	// A new mount takes its place.
	a.mount()
	c.awaitMembers(3)
	a.lost("f", hold.cmd.Process.Pid)
	if out, code := a.sh("flock -n f true"); code != 0 {
		t.Errorf("flock after the mount was made anew: %d %s", code, out)
	}
}

func TestTwoOfThreeDie(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b, s := c.mounts[0], c.mounts[1], c.mounts[2]
	hold := a.helper("hold", "flock", "f")
	a.held("f", 1)
	wait := s.helper("take", "flock", "f")
	s.blocked("f", 1)
	began := time.Now()
	a.kill()
	b.kill()
	if out, code := wait.wait(); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	t.Logf("the survivor went on after %v", time.Since(began))
	await(t, "the survivor is alone", func() bool {
		st, err := s.status()
		return err == nil && st.Members == 1 && st.State == "live"
	})
	hold.signal(unix.SIGKILL)
	a.mount()
	b.mount()
	c.awaitMembers(3)
}

// All die. Whoever is started first goes on, with its state directory or
// without; the others come back; nothing is held any more, and the journals
// tell what was.
func TestAllDie(t *testing.T) {
	t.Parallel()
	var side parts
	defer side.Wait()
	for _, wiped := range []bool{false, true} {
		side.run(t, fmt.Sprintf("wiped=%v", wiped), func(t *testing.T) {
			c := newCluster(t, 3)
			pids := map[*testMount]int{}
			for i, m := range c.mounts {
				p := m.helper("hold", "flock", fmt.Sprintf("f%d", i))
				m.held(fmt.Sprintf("f%d", i), 1)
				pids[m] = p.cmd.Process.Pid
			}
			before := map[*testMount]int{}
			for _, m := range c.mounts {
				before[m] = len(m.journal())
			}
			for _, m := range c.mounts {
				m.kill()
			}
			if wiped {
				for _, m := range c.mounts {
					if err := os.RemoveAll(m.state); err != nil {
						t.Fatal(err)
					}
				}
			}
			first := c.mounts[1]
			began := time.Now()
			first.mount()
			if out, code := first.sh("for i in 0 1 2; do flock -n f$i true || exit 1; done"); code != 0 {
				t.Fatalf("the first mount after all died: %d %s", code, out)
			}
			t.Logf("the first mount was usable after %v", time.Since(began))
			c.mounts[0].mount()
			c.mounts[2].mount()
			c.awaitMembers(3)
			for i, m := range c.mounts {
				if n := m.count(fmt.Sprintf("f%d", i), "held"); n != 0 {
					t.Errorf("%d locks are held of f%d", n, i)
				}
				if wiped {
					continue
				}
				m.lost(fmt.Sprintf("f%d", i), pids[m])
				if rows := m.journal(); len(rows) < before[m] {
					t.Errorf("%s: the journal had %d records, and has %d", m.dir, before[m], len(rows))
				}
			}
		})
	}
}
