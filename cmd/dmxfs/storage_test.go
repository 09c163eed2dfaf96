package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// Tests of storage that stands still. The shared directory is a FUSE file
// system, served by a process that a test can stop.

// hangingStorage is a mount of a directory that can be made to hang.
type hangingStorage struct {
	t   testing.TB
	dir string
	pid int
}

// newHangingStorage mounts backing at dir.
func newHangingStorage(t testing.TB, backing, dir string) *hangingStorage {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", backing, dir)
	cmd.Env = append(os.Environ(), helperEnv+"=loopback")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &hangingStorage{t, dir, cmd.Process.Pid}
	t.Cleanup(func() {
		s.hang(false)
		for s.mounted() && unix.Unmount(dir, unix.MNT_DETACH) == nil {
		}
		_ = cmd.Wait()
	})
	await(t, "the storage is mounted", s.mounted)
	return s
}

func (s *hangingStorage) mounted() bool {
	all, err := mountinfo.Read()
	if err != nil {
		s.t.Fatal(err)
	}
	_, ok := mountinfo.At(all, s.dir)
	return ok
}

func (s *hangingStorage) hang(yes bool) {
	sig := unix.SIGCONT
	if yes {
		sig = unix.SIGSTOP
	}
	if err := unix.Kill(s.pid, sig); err != nil {
		s.t.Errorf("stop or continue the storage: %v", err)
	}
	if yes {
		await(s.t, "the storage stands still", func() bool { return standsStill(s.pid) })
	}
}

// The inodes are those of the directory below, and nothing is cached for longer
// than a second.
var onStorage = []string{"--file-id", "inode", "--listing-age", "1s"}

// Storage that hangs for 10 or 20 s: who holds a lock still has it afterwards, who
// asks for one waits, nobody is thrown out, and all goes on.
func TestStorageHangs(t *testing.T) {
	t.Parallel()
	long.NoTurn(t)
	c := newCluster(t, 0)
	s := newHangingStorage(t, c.src, filepath.Join(c.dir, "storage"))
	for range 3 {
		m := c.add(onStorage...)
		m.src = s.dir
		m.mount()
	}
	c.awaitMembers(3)
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("append", "flock", "f", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("f") > 100 })
	gate := filepath.Join(c.dir, "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	says := filepath.Join(c.dir, "says")
	ask := b.start(fmt.Sprintf("exec 9>g; echo open > %[1]s; read x < %[2]s; flock 9; echo locked > %[1]s", says, gate))
	await(t, "the file is open", func() bool { b, _ := os.ReadFile(says); return string(b) == "open\n" })
	epoch := a.peers().Epoch

	s.hang(true)
	began := time.Now()
	await(t, "all are suspended", func() bool {
		for _, m := range c.mounts {
			st, err := m.status()
			if err != nil || st.State != "suspended" || !strings.Contains(strings.Join(st.Problems, " "), "no look at the views") {
				return false
			}
		}
		return true
	})
	t.Logf("suspended after %v", time.Since(began))
	write(t, gate, "x\n")
	size := c.size("f")
	hung := long.Or(10*time.Second, 20*time.Second)
	await(t, fmt.Sprint(hung, " have passed"), func() bool { return time.Since(began) > hung })
	if got := read(t, says); got != "open\n" {
		t.Errorf("a lock was granted while the storage hung: %q", got)
	}
	if hold.ended() {
		t.Errorf("the holder has ended: %s", hold.out.String())
	}
	s.hang(false)
	began = time.Now()
	if out, code := ask.wait(); code != 0 || read(t, says) != "locked\n" {
		t.Errorf("who waited: %d %q", code, out)
	}
	await(t, "the holder writes on", func() bool { return c.size("f") > size+100 })
	c.awaitMembers(3)
	t.Logf("all went on %v after the storage did", time.Since(began))
	if e := a.peers().Epoch; e != epoch {
		t.Errorf("epoch %d became %d", epoch, e)
	}
	hold.signal(unix.SIGKILL)
	hold.ends("the holder")
	checkOrder(t, withoutCutLine(read(t, c.src+"/f"), "x", ""), "x")
	for _, m := range c.mounts {
		if rows := m.journal("--event", "lost,fenced,late_write"); len(rows) != 0 {
			t.Errorf("%s: %+v", m.dir, rows)
		}
	}
}

// A write that the storage carries out when its lock was given away, because
// it stood still for one host alone: nothing above the storage can prevent
// that. The program gets an error, and the journal and the log say what came
// late.
func TestLateWriteIsReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	c.net = newNetwork(t)
	s := newHangingStorage(t, c.src, filepath.Join(c.dir, "storage"))
	for i := range 2 {
		m := c.addHost(onStorage...)
		if i == 0 {
			m.src = s.dir
		}
		m.mount()
	}
	c.awaitMembers(2)
	a, b := c.mounts[0], c.mounts[1]
	old := a.helper("append", "flock", "f", "old", "0")
	await(t, "the holder has written", func() bool { return c.size("f") > 100 })
	next := b.helper("append", "flock", "f", "new", "50")
	b.blocked("f", 1)

	s.hang(true) // in the middle of a write, or else the next one is it
	a.cut(b)
	if out, code := next.wait(); code != 0 {
		t.Fatalf("the next holder: %d %s", code, out)
	}
	a.heal()
	await(t, "it knows that it was expelled", func() bool { return len(a.journal("--event", "fenced")) == 1 })
	s.hang(false)
	if out, _ := old.wait(); out != "write: input/output error\n" {
		t.Errorf("the old holder was told: %q", out)
	}
	rows := a.journal("--event", "late_write")
	if len(rows) != 1 || rows[0].Path != "f" || rows[0].PID != old.cmd.Process.Pid || rows[0].End <= int64(rows[0].Start) {
		t.Fatalf("the journal says of the late write: %+v", rows)
	}
	if log := a.log(); !strings.Contains(log, "a write may have reached the storage after its lock was lost") ||
		!strings.Contains(log, fmt.Sprintf("path=f offset=%d", rows[0].Start)) {
		t.Errorf("the log does not tell of the late write")
	}
	// That one write, of one line, is all that came after the next holder began.
	_, after, _ := strings.Cut(read(t, c.src+"/f"), "new ")
	if late := strings.Count(after, "old "); late > 1 {
		t.Errorf("%d lines came late:\n%s", late, after)
	}
	c.awaitMembers(2)
}
