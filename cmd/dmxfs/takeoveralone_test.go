package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/supervise"
)

// next is the daemon that the watcher has started in the place of old, as soon as it is there:
// it has taken nothing yet, if nobody else has had the processor.
func (m *testMount) next(old int) (pid int) {
	m.c.t.Helper()
	for end := time.Now().Add(patienceOfTests / 2); time.Now().Before(end); {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", m.watcher))
		for _, list := range lists {
			b, _ := os.ReadFile(list)
			for _, s := range strings.Fields(string(b)) {
				if pid, _ := strconv.Atoi(s); pid != 0 && pid != old && serves(pid) {
					return pid
				}
			}
		}
	}
	m.c.t.Fatal("there is no other daemon")
	return 0
}

// isTold reports whether a process that waits to go on, and stands still, has been told that
// it is its turn.
func isTold(t *testing.T, pid int) bool {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/8", pid), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// The watcher is killed while a daemon takes over, which it does not need any more, or
// cannot do without: then the mount is made anew. In any case there are a daemon and
// another watcher, nothing hangs, and the next death is taken over again.
func TestTakeoverLosesItsWatcher(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--takeover")
	a, b := c.mounts[0], c.mounts[1]
	anew := 0
	for i := 0; i < 8 || anew == 0 && i < 40; i += long.Or(4, 1) {
		a.livesOn()
		before := a.mayTakeOver()
		hold := a.helper("append", "flock", "held", "x", "0")
		a.held("held", 1)
		stop := a.cutsOff()
		old, watcher, next := a.daemon(), a.watcher, 0
		if i%2 == 1 {
			a.signal(unix.SIGKILL)
			next = a.next(old)
			<-time.After(time.Duration(i) * 5 * time.Millisecond) // somewhere in what it does
			_ = unix.Kill(watcher, unix.SIGKILL)
		} else { // it has taken nothing yet
			await(t, "the watcher has a next daemon", func() bool { // not the one of a former watcher, which ends
				next = a.ready()
				return parent(next) == watcher
			})
			_ = unix.Kill(next, unix.SIGSTOP)
			await(t, "it stands still", func() bool { return standsStill(next) })
			a.signal(unix.SIGKILL)
			await(t, "it is told what it goes on with", func() bool { return isTold(t, next) })
			_ = unix.Kill(watcher, unix.SIGKILL)
			await(t, "the watcher has ended", func() bool { return !alive(watcher) })
			_ = unix.Kill(next, unix.SIGCONT)
		}
		await(t, "there is another watcher", func() bool {
			pid, err := supervise.WatcherOf(a.state)
			a.watcher = pid
			return err == nil && pid != 0 && pid != watcher
		})
		a.awaitNew(old)
		stop()
		if out, code := a.sh("echo x >after && cat after"); code != 0 || out != "x\n" {
			t.Fatalf("round %d: the mount: %d %q\n%s", i, code, out, a.log())
		}
		if x := a.takeover(); x.Count > before.Count && a.daemon() == next {
			t.Logf("round %d: it went on", i)
			if hold.ended() {
				t.Errorf("round %d: the holder has ended: %s", i, hold.out.String())
			}
			hold.signal(unix.SIGKILL)
			// No takeover until a daemon is started anew.
			last := a.daemon()
			a.signal(unix.SIGKILL)
			a.awaitNew(last)
		} else {
			t.Logf("round %d: it began anew: %+v", i, x)
			anew++
			hold.ends("the holder, whose mount is gone, ends")
		}
		if out, code := b.sh("flock -w 20 held true"); code != 0 {
			t.Errorf("round %d: the lock: %d %s", i, code, out)
		}
		a.mayTakeOver()
		await(t, "there is one keeper", func() bool { return a.keepers() == 1 })
	}
	if anew == 0 {
		t.Error("none has begun anew")
	}
	await(t, "the log says why", func() bool {
		return strings.Contains(a.log(), "has ended while it took over")
	})
	a.killed(unix.SIGKILL)
}

// Daemons are killed in the middle of their upgrades, at any moment. The command says
// whether the mount is served by the new program, and whether anything was lost.
func TestUpgradeThatIsTakenOver(t *testing.T) {
	t.Parallel()
	long.NoTurn(t)
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	said := map[string]int{}
	programs := []string{programCopy(t, "one"), programCopy(t, "other")}
	for i := 0; i < 10; i += long.Or(5, 1) {
		m.livesOn()
		before := m.mayTakeOver()
		hold := m.helper("append", "flock", "held", "x", "0")
		m.held("held", 1)
		stop := m.cutsOff()
		old := m.daemon()
		program := programs[0]
		if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", old)); exe == program {
			program = programs[1]
		}
		var out bytes.Buffer
		cmd := c.cmd("upgrade", "--program", program, m.dir)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(i) * 20 * time.Millisecond)
		_ = unix.Kill(old, unix.SIGKILL)
		err := cmd.Wait()
		m.awaitNew(old)
		stop()
		x := m.takeover()
		lost := x.Count <= before.Count
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", m.daemon()))
		is := exe == program
		want := ""
		switch {
		case strings.Contains(out.String(), "ended before it had answered"): // it was killed when it was asked
		case lost:
			want = "the locks of this host were lost"
		case is:
			want = "upgraded from"
		default:
			want = "Nothing was lost"
		}
		if !strings.Contains(out.String(), want) || (err == nil) != (want == "upgraded from") {
			t.Errorf("round %d: lost %v, upgraded %v (%s): %v %s", i, lost, is, exe, err, out.String())
		}
		said[want]++
		if lost {
			hold.ends("the holder, whose mount is gone, ends")
		} else if hold.ended() {
			t.Errorf("round %d: the holder has ended: %s", i, hold.out.String())
		}
		hold.signal(unix.SIGKILL)
	}
	t.Logf("%v", said)
}

// A program that goes on after an upgrade is killed when its view is on the storage, and
// perhaps before it knows that. The next one knows that it is in the place of the one before.
func TestTakeoverOfAnUpgradeWithItsView(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, withTakeover()...)
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("append", "flock", "held", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("held") > 20 })
	for i := 0; i < 8; i += long.Or(4, 1) {
		a.livesOn()
		before, stop := a.mayTakeOver(), a.cutsOff()
		old, views := a.daemon(), c.views()
		cmd, out := c.cmd("upgrade", a.dir), new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); c.views() == views && time.Now().Before(end); {
			runtime.Gosched()
		}
		_ = unix.Kill(old, unix.SIGKILL)
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "upgraded from") { // by the same program
			t.Errorf("round %d: the command: %v %s", i, err, out)
		}
		a.awaitNew(old)
		stop()
		if x := a.takeover(); x.Count != before.Count+1 {
			t.Fatalf("round %d: nobody has gone on: %+v", i, x)
		}
		if out, code := b.sh("flock -n held true"); code != 1 {
			t.Errorf("round %d: flock -n beside the holder: %d %s", i, code, out)
		}
		size := c.size("held")
		await(t, "the holder writes on", func() bool { return hold.ended() || c.size("held") > size+20 })
		if hold.ended() {
			t.Fatalf("round %d: the holder has ended: %s", i, hold.out.String())
		}
	}
	if r := a.journal("--event", "lost,fenced"); len(r) > 0 {
		t.Errorf("lost: %+v", r)
	}
}

// views is the last view on the storage.
func (c *testCluster) views() (last string) {
	list, err := os.ReadDir(filepath.Join(c.src, ".dmxfs", "views"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range list {
		if _, err := strconv.ParseUint(e.Name(), 10, 64); err == nil { // else it is not linked yet
			last = max(last, e.Name())
		}
	}
	return last
}

// programCopy is another file with this program.
func programCopy(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	copyProgram(t, path)
	return path
}

// copyProgram is done by another process: what this one has open to write to it, another test
// may hand to a program that it starts at that moment, and then nobody can execute it.
func copyProgram(t *testing.T, path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", self, path).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
}
