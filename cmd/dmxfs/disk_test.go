package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
)

// Tests of trouble with the local disk.

// smallDisk mounts a file system of a few megabytes.
func smallDisk(t testing.TB, dir string, megabytes int) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount the small disk: %v", err)
		}
	})
}

// fill leaves no room in the file system of dir; the result gives it back, that
// of all calls.
func fill(t testing.TB, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for b := make([]byte, 1<<20); ; {
		if _, err := f.Write(b); err != nil {
			break
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// The disk of a journal that is required is full: what is held is not concerned,
// what is new is refused with ENOLCK, and all is well as soon as there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	disk := filepath.Join(c.dir, "disk")
	smallDisk(t, disk, 160)
	a, b := c.add(), c.add()
	a.state = filepath.Join(disk, "state")
	a.args = append(a.args, "--journal=required")
	a.mount()
	b.mount()
	c.awaitMembers(2)
	hold := a.helper("append", "flock", "f", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("f") > 100 })

	free := fill(t, disk)
	var out string
	await(t, "new locks are refused", func() bool {
		var code int
		out, code = a.helper("try", "flock", "g").wait()
		return code != 0
	})
	if out != "open: no locks available\n" && out != "no locks available\n" {
		t.Errorf("a new lock: %q", out)
	}
	s, err := a.status()
	if err != nil || s.Healthy || !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.HasPrefix(p, "journal: ") && strings.Contains(p, "space") }) {
		t.Errorf("status: %+v %v", s, err)
	}
	if out, code := b.sh("flock -n g true"); code != 0 {
		t.Errorf("a lock on another node: %d %s", code, out)
	}
	n := c.size("f")
	await(t, "the holder writes on", func() bool { return c.size("f") > n+100 })
	if hold.ended() {
		t.Errorf("the holder has ended: %s", hold.out.String())
	}
	// A daemon that is killed now cannot start without a journal; it comes
	// back when there is room.
	free()
	await(t, "new locks are granted again", func() bool {
		_, code := a.helper("try", "flock", "g").wait()
		return code == 0
	})
	await(t, "it is well", func() bool { s, err := a.status(); return err == nil && s.Healthy })
	hold.signal(unix.SIGKILL)
	hold.ends("the holder")
	await(t, "the journal has the end of the lock", func() bool { return len(a.journal("--event", "released", "--path", "f")) > 0 })

	c.run("unmount", a.dir)
	free = fill(t, disk)
	if err := a.tryMount(); code(err) != exitcode.Failure || !strings.Contains(err.Error(), "space") || !strings.Contains(err.Error(), disk) {
		t.Errorf("a start with a full disk: %v", err)
	}
	free()
	a.mount()
	c.awaitMembers(2)
}

// The disk of the journal is full: locks are had as before, status tells it, and
// the journal has what happened meanwhile when there is room.
func TestLocksWithAFullDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	disk := filepath.Join(c.dir, "disk")
	smallDisk(t, disk, 160)
	a := c.add()
	a.state = filepath.Join(disk, "state")
	a.mount()
	free := fill(t, disk)
	await(t, "status tells it", func() bool {
		if out, code := a.sh("flock -n f true"); code != 0 {
			t.Fatalf("a lock: %d %s", code, out)
		}
		s, err := a.status()
		return err == nil && !s.Healthy && slices.ContainsFunc(s.Problems, func(p string) bool { return strings.HasPrefix(p, "journal: ") && strings.Contains(p, "space") })
	})
	if out, code := a.sh("flock -n g true"); code != 0 {
		t.Errorf("a lock after that: %d %s", code, out)
	}
	free()
	await(t, "it is well", func() bool { s, err := a.status(); return err == nil && s.Healthy })
	if n := len(a.journal("--event", "granted", "--path", "g")); n == 0 {
		t.Error("the journal does not know of the lock")
	}
}

// A daemon that is killed while its disk is full comes back at once, and so does
// one that is mounted then: locks are had, status tells what is wrong, and the
// journal has all of it when there is room.
func TestKilledWithAFullDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	disk := filepath.Join(c.dir, "disk")
	smallDisk(t, disk, 160)
	a, b := c.add(), c.add()
	a.state = filepath.Join(disk, "state")
	a.mount()
	b.mount()
	c.awaitMembers(2)
	hold := a.helper("hold", "flock", "before")
	a.held("before", 1)
	free := fill(t, disk)
	old := a.daemon()
	a.signal(unix.SIGKILL)
	a.awaitNew(old)
	c.awaitMembers(2)
	hold.signal(unix.SIGKILL)
	a.locksWithAFullDisk("f")
	if out, code := b.sh("flock -n f true"); code != 0 {
		t.Errorf("a lock that was given back: %d %s", code, out)
	}
	c.run("unmount", a.dir)
	a.mount()
	c.awaitMembers(2)
	a.locksWithAFullDisk("g")

	free()
	await(t, "it is well", func() bool { s, err := a.status(); return err == nil && s.Healthy })
	if n := len(a.journal("--event", "granted", "--path", "g")); n == 0 {
		t.Error("the journal does not know of the lock")
	}
	if n := len(a.journal("--event", "lost", "--path", "before")); n != 1 {
		t.Errorf("of the lock that was lost by the kill there are %d records", n)
	}
	// What was moved is on the disk.
	c.run("unmount", a.dir)
	a.mount()
	if n := len(a.journal("--event", "released", "--path", "g")); n == 0 {
		t.Error("the journal has lost what happened while its disk was full")
	}
}

func (m *testMount) locksWithAFullDisk(file string) {
	t := m.c.t
	t.Helper()
	if out, code := m.sh("flock -n " + file + " true"); code != 0 {
		t.Errorf("a lock: %d %s", code, out)
	}
	s, err := m.status()
	if err != nil || s.Healthy || s.State != "live" ||
		!slices.ContainsFunc(s.Problems, func(p string) bool { return strings.HasPrefix(p, "journal: ") && strings.Contains(p, "space") }) {
		t.Errorf("status: %+v %v", s, err)
	}
	if n := len(m.journal("--event", "granted", "--path", file)); n == 0 {
		t.Error("the history in memory does not know of the lock")
	}
}

// With a journal that is required a daemon that is killed while its disk is full
// comes back when there is room.
func TestKilledWithAFullDiskThatIsRequired(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	disk := filepath.Join(c.dir, "disk")
	smallDisk(t, disk, 160)
	a, b := c.add("--journal=required"), c.add()
	a.state = filepath.Join(disk, "state")
	a.mount()
	b.mount()
	c.awaitMembers(2)
	free := fill(t, disk)
	old := a.daemon()
	a.signal(unix.SIGKILL)
	await(t, "the others go on without it", func() bool { return b.live(1) })
	a.waiting("space")
	if !a.mounted() {
		t.Error("the dead mount is gone: it uncovers what it shims")
	}
	free()
	a.awaitNew(old)
	c.awaitMembers(2)

	// Who unmounts does not want it to come back.
	free = fill(t, disk)
	a.signal(unix.SIGKILL)
	await(t, "it cannot be started", func() bool { return mountpoint.IsDead(a.dir) && a.daemon() == 0 })
	c.run("unmount", a.dir)
	if a.mounted() {
		t.Error("mounted after the unmount")
	}
	await(t, "the watcher ends", func() bool { return !alive(a.watcher) })
	free()
	await(t, "the other goes on alone", func() bool { return b.live(1) })
}

// What a crash can leave of the journal does not keep a daemon from starting.
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--no-restart")
	m := c.mounts[0]
	for _, x := range []struct {
		name   string
		damage func(t *testing.T, db string)
	}{
		{"an empty log", func(t *testing.T, db string) { write(t, newest(t, db, ".mem", 1), "") }},
		{"an empty value log", func(t *testing.T, db string) { write(t, newest(t, db, ".vlog", 1), "") }},
		{"a torn log", func(t *testing.T, db string) {
			b := []byte(read(t, newest(t, db, ".mem", 0)))
			end := len(b)
			for end > 0 && b[end-1] == 0 {
				end--
			}
			if end < 100 {
				t.Fatalf("the log has %d bytes", end)
			}
			write(t, newest(t, db, ".mem", 0), string(b[:end-50])+strings.Repeat("\x00", len(b)-end+50))
		}},
		{"no manifest", func(t *testing.T, db string) {
			if err := os.Remove(filepath.Join(db, "MANIFEST")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			if out, code := m.sh("for i in $(seq 50); do flock f true || exit 1; done"); code != 0 {
				t.Fatalf("%d %s", code, out)
			}
			await(t, "the journal has something", func() bool { return len(m.journal("--event", "released", "--path", "f")) >= 50 })
			before := m.journal()
			m.kill()
			x.damage(t, filepath.Join(m.state, "journal", "db"))
			m.mount()
			if out, code := m.sh("flock f true"); code != 0 {
				t.Errorf("%d %s", code, out)
			}
			after := m.journal()
			if len(after) == 0 || after[len(after)-1].Seq <= before[len(before)-1].Seq-200 {
				t.Errorf("%d records became %d", len(before), len(after))
			}
		})
	}
}

// newest is the file with the greatest number and a suffix, or the name of the
// one after it.
func newest(t *testing.T, dir, suffix string, after int) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(list) == 0 {
		t.Fatalf("no %s in %s: %v", suffix, dir, err)
	}
	slices.Sort(list)
	last := list[len(list)-1]
	if after == 0 {
		return last
	}
	var n int
	base := strings.TrimSuffix(filepath.Base(last), suffix)
	if _, err := fmt.Sscanf(base, "%d", &n); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, fmt.Sprintf("%0*d%s", len(base), n+after, suffix))
}
