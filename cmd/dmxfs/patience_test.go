package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
)

// Tests of watchers that go on until trouble has passed.

// waiting waits until status tells that the mount has no daemon, and why.
func (m *testMount) waiting(why string) {
	m.c.t.Helper()
	var s admin.Status
	defer func() {
		if m.c.t.Failed() {
			m.c.t.Logf("status: %+v", s)
		}
	}()
	await(m.c.t, "status tells of "+why, func() bool {
		var err error
		s, err = m.status()
		return err == nil && s.State == "waiting" && !s.Healthy && len(s.Problems) == 1 && strings.Contains(s.Problems[0], why)
	})
}

// A daemon is killed while the storage is full: it comes back when there is
// room, and status tells until then what is waited for.
func TestKilledWithFullStorage(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	if err := os.Remove(c.src); err != nil {
		t.Fatal(err)
	}
	smallDisk(t, c.src, 2)
	// Alone: what another one has done with its views can leave room. With a takeover it would
	// go on at once, see TestTakeoverWithAFullDisk.
	a := c.add("--takeover=false")
	a.mount()
	free := fill(t, c.src)
	old := a.daemon()
	a.signal(unix.SIGKILL)
	a.waiting("no space left")
	if !a.mounted() || !mountpoint.IsDead(a.dir) {
		t.Error("the mount of the killed daemon is not dead")
	}
	free()
	a.awaitNew(old)
	if out, code := a.sh("flock f true"); code != 0 {
		t.Errorf("a lock after that: %d %s", code, out)
	}
}

// A member dies while there is not a byte left on the storage: the other one
// goes on without it, by the room that is kept for views.
func TestDeathWithFullStorage(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	if err := os.Remove(c.src); err != nil {
		t.Fatal(err)
	}
	smallDisk(t, c.src, 2)
	a, b := c.add(), c.add()
	a.mount()
	b.mount()
	c.awaitMembers(2)
	if out, code := a.sh("touch f g"); code != 0 {
		t.Fatal(out)
	}
	hold := a.start("flock f sleep 1000")
	a.held("f", 1)
	room := func() int {
		left, err := os.ReadDir(filepath.Join(c.src, ".dmxfs", "room"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range left {
			if _, err := strconv.Atoi(f.Name()); err == nil { // no leftover of who was killed as it made one
				n++
			}
		}
		return n
	}
	await(t, "room is kept", func() bool { return room() == 8 })
	free := fill(t, c.src)
	a.kill()
	fill(t, c.src)                            // what was under way may have left some
	for _, name := range []string{"f", "g"} { // that of the dead one, and another
		if out, code := b.sh("flock " + name + " true"); code != 0 {
			t.Errorf("a lock of %s: %d %s", name, code, out)
		}
	}
	await(t, "the other one is alone", func() bool {
		s, err := b.status()
		return err == nil && s.State == "live" && s.Members == 1
	})
	if n := room(); n >= 8 {
		t.Errorf("%d files of room are left: the storage was not full", n)
	}
	free()
	hold.signal(unix.SIGKILL)
	a.mount()
	c.awaitMembers(2)
	await(t, "room is kept again", func() bool { return room() == 8 })
}

// A watcher that waits for its storage takes the dead mount away when it is asked
// to end, also if programs are there.
func TestAWatcherThatWaitsEndsInOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	there := m.start("touch f; exec sleep 1000")
	await(t, "the program is there", func() bool { _, err := os.Stat(m.path("f")); return err == nil })
	// The daemon writes to it meanwhile.
	await(t, "the shared directory is removed", func() bool { return os.RemoveAll(c.src) == nil })
	m.signal(unix.SIGKILL)
	m.waiting("is gone")
	pids := []int{m.watcher}
	if err := unix.Kill(m.watcher, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !m.ended(pids) || m.mounted() {
		t.Error("SIGTERM to a watcher that has no daemon leaves the dead mount")
	}
	there.signal(unix.SIGKILL)
}

// The shared directory is removed, and comes back, under the same path.
func TestSourceIsGoneAndBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	if out, code := m.sh("echo text > f"); code != 0 {
		t.Fatal(out)
	}
	copied := filepath.Join(c.dir, "copied")
	if out, err := exec.Command("cp", "-a", c.src, copied).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
	// The daemon writes to it meanwhile.
	await(t, "the shared directory is removed", func() bool { return os.RemoveAll(c.src) == nil })
	await(t, "status tells the truth", func() bool {
		s, err := m.status()
		return err == nil && strings.Contains(strings.Join(s.Problems, " "), "missing from the shared storage")
	})
	old := m.daemon()
	m.signal(unix.SIGKILL) // it would end by itself, after half a minute
	m.waiting("is gone")
	// The directory on which the storage is mounted is not taken for it.
	if err := os.Mkdir(c.src, 0o755); err != nil {
		t.Fatal(err)
	}
	m.waiting("no cluster is here")
	if err := unix.Mount(copied, c.src, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(c.src, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	m.awaitNew(old)
	if got := read(t, m.path("f")); got != "text\n" {
		t.Errorf("the file has %q", got)
	}
}
