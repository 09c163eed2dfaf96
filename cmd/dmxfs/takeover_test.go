package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/supervise"
)

// takeover is what status says of it.
func (m *testMount) takeover() admin.Takeover {
	m.c.t.Helper()
	s, err := m.status()
	if err != nil {
		m.c.t.Fatal(err)
	}
	if s.Takeover == nil {
		m.c.t.Fatal("status says nothing of a takeover")
	}
	return *s.Takeover
}

// mayTakeOver waits until another daemon could go on.
func (m *testMount) mayTakeOver() (x admin.Takeover) {
	m.c.t.Helper()
	var (
		s     admin.Status
		err   error
		could bool
	)
	defer func() {
		if !could {
			m.c.t.Logf("status of %s: %+v, its takeover %+v, %v", m.dir, s, s.Takeover, err)
		}
	}()
	await(m.c.t, "another daemon could go on", func() bool {
		var is admin.Status
		if is, err = m.status(); err != nil {
			return false
		}
		if s = is; s.Takeover == nil { // the last one that there was, whatever ends the wait
			return false
		}
		x = *s.Takeover
		could = x.Possible && s.State == "live"
		return could
	})
	return x
}

// killed kills the daemon, and waits until another one goes on. What hangs is cut off.
func (m *testMount) killed(by unix.Signal) {
	m.c.t.Helper()
	before, old := m.mayTakeOver(), m.daemon()
	defer m.cutsOff()()
	m.signal(by)
	m.awaitNew(old)
	if x := m.takeover(); x.Count != before.Count+1 || x.Generation != before.Generation+1 {
		m.c.t.Fatalf("nobody has gone on: %+v, before %+v\n%s", x, before, m.log())
	}
}

// livesOn waits until the daemon has served for so long that what it has taken over is not
// suspected to have killed it.
func (m *testMount) livesOn() {
	m.c.t.Helper()
	await(m.c.t, "the daemon lives on", func() bool {
		s, err := m.status()
		return err == nil && time.Since(s.VersionSince) > 2500*time.Millisecond
	})
}

// cutsOff cuts the mount off if it is not stopped in time.
func (m *testMount) cutsOff() (stop func()) {
	late := time.AfterFunc(time.Minute, func() {
		m.c.t.Errorf("%s has hung for a minute", m.dir)
		_ = unix.Unmount(m.dir, unix.MNT_FORCE)
	})
	m.c.t.Cleanup(func() { late.Stop() })
	return func() { late.Stop() }
}

// nothingLost checks that no lock was lost, and nothing went wrong.
func (m *testMount) nothingLost(takeovers int) {
	m.c.t.Helper()
	await(m.c.t, "the journal tells of the last takeover", func() bool {
		r := m.journal("--event", "taken_over")
		return len(r) > 0 && strings.HasPrefix(r[len(r)-1].Reason, fmt.Sprintf("takeover %d ", takeovers))
	})
	if r := m.journal("--event", "lost,fenced,recovered,late_write"); len(r) > 0 {
		m.c.t.Errorf("lost: %+v", r)
	}
	for line := range strings.Lines(m.log()) {
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "another one goes on") && !strings.Contains(line, "crashed: please report") {
			m.c.t.Errorf("the log of %s: %s", m.dir, line)
		}
	}
}

// serves reports whether a process that a watcher has started serves the mount, or is about to:
// it neither keeps descriptors nor waits for its turn, or will.
func serves(pid int) bool {
	proc := func(name string) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name)) // empty if it has ended
		return string(b)
	}
	comm := proc("comm")
	if strings.Contains(proc("environ"), "DMXFS_WAITS=") && comm != process.Name+"\n" {
		return false
	}
	return comm != "dmxfs-keeper\n" && strings.Contains(proc("cmdline"), supervise.ServeCommand) && alive(pid)
}

// keepers counts the keepers that there are of the daemons of a mount.
func (m *testMount) keepers() int { return len(m.keeperPIDs()) }

func (m *testMount) keeperPIDs() (list []int) {
	m.c.t.Helper()
	procs, err := os.ReadDir("/proc")
	if err != nil {
		m.c.t.Fatal(err)
	}
	for _, p := range procs {
		comm, err := os.ReadFile("/proc/" + p.Name() + "/comm")
		if err != nil || string(comm) != "dmxfs-keeper\n" {
			continue
		}
		if line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline"); err == nil && strings.Contains(string(line), m.dir) {
			pid, _ := strconv.Atoi(p.Name())
			list = append(list, pid)
		}
	}
	return list
}

// A daemon is killed. A program that has a file open goes on, its lock is held still, and
// what is asked meanwhile is answered by the next one.
func TestTakeover(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	hold := m.helper("append", "flock", "held", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("held") > 20 })
	m.held("held", 1)
	for i, by := range []unix.Signal{unix.SIGKILL, unix.SIGABRT} {
		if m.killed(by); by == unix.SIGABRT {
			m.crashes++
		}
		size := c.size("held")
		await(t, "the holder writes on", func() bool { return hold.ended() || c.size("held") > size+20 })
		if hold.ended() {
			t.Fatalf("the holder has ended: %s", hold.out.String())
		}
		if n := m.count("held", "held"); n != 1 {
			t.Errorf("%d locks are held", n)
		}
		if out, code := m.sh("flock -n held true"); code != 1 {
			t.Errorf("flock -n beside the holder: %d %s", code, out)
		}
		m.nothingLost(i + 1)
		await(t, "the keeper of before has ended", func() bool { return m.keepers() == 1 })
		if n := value(t, m, "dmxfs_takeovers_total", nil); n != float64(i+1) {
			t.Errorf("metrics tell of %v takeovers, want %d", n, i+1)
		}
		await(t, "metrics tell of the pause", func() bool { return value(t, m, "dmxfs_takeover_pause_seconds", nil) > 0 })
	}
	hold.signal(unix.SIGKILL)
	if out, code := m.sh("flock held true"); code != 0 {
		t.Errorf("flock when the holder is gone: %d %s", code, out)
	}
	c.run("unmount", m.dir)
	await(t, "no keeper is left", func() bool { return m.keepers() == 0 })
}

// withTakeover are the flags of hosts that lose nothing while their daemons are killed.
// With the race detector, and beside all other tests, the next one takes longer to begin at
// times than a tenure lasts.
func withTakeover() []string {
	if long.Race {
		return []string{"--takeover", "--tenure", "30s"}
	}
	return []string{"--takeover"}
}

// The lock is in force for the other host all the time, and who waits there gets it when
// it is given up.
func TestTakeoverOfTwoHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, withTakeover()...)
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("append", "flock", "held", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("held") > 20 })
	wait := b.helper("take", "flock", "held")
	b.blocked("held", 1)
	for i := range 2 {
		a.killed(unix.SIGKILL)
		b.killed(unix.SIGKILL)
		size := c.size("held")
		await(t, "the holder writes on", func() bool { return hold.ended() || c.size("held") > size+20 })
		if hold.ended() || wait.ended() {
			t.Fatalf("%s%s", hold.out.String(), wait.out.String())
		}
		if out, code := b.sh("flock -n held true"); code != 1 {
			t.Errorf("flock -n beside the holder: %d %s", code, out)
		}
		a.nothingLost(i + 1)
		b.nothingLost(i + 1)
	}
	hold.signal(unix.SIGKILL)
	if out, code := wait.wait(); code != 0 {
		t.Errorf("who waited: %d %s", code, out)
	}
}

// Programs count under locks on two hosts while the daemons of both are killed again and
// again: every count is right, and no program gets an error.
func TestTakeoverUnderPrograms(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, withTakeover()...)
	var programs []*proc
	kinds := []string{"flock", "fcntl", "ofd"}
	// They go on until about the last kill, which is 6 or 12 seconds later.
	times, rest := long.Or(90, 400), long.Or("50ms", "10ms")
	for _, kind := range kinds {
		if err := os.Mkdir(c.src+"/"+kind, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, c.src+"/"+kind+"/data", "0")
	}
	for i, m := range c.mounts {
		for j, kind := range kinds {
			programs = append(programs, m.helperIn(kind, "counter", kind, []string{"kept", "anew"}[(i+j)%2], "lockfile", fmt.Sprint(times), rest))
		}
	}
	rounds := 0
	for ; rounds < long.Or(2, 4); rounds++ {
		for _, m := range c.mounts {
			m.livesOn()
			m.killed(unix.SIGKILL)
		}
	}
	for _, p := range programs {
		if out, code := p.wait(); code != 0 {
			t.Errorf("%v: %d %s", p.cmd.Args, code, out)
		}
	}
	for _, kind := range kinds {
		if got := read(t, c.src+"/"+kind+"/data"); got != fmt.Sprint(2*times) {
			t.Errorf("%s: counted to %s, want %d", kind, got, 2*times)
		}
	}
	for _, m := range c.mounts {
		m.nothingLost(rounds)
	}
}

// A daemon crashes again and again as soon as it is there: as by a request that crashes each
// one that takes it. In the end one begins anew, and programs get errors.
func TestTakeoverIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	hold := m.helper("append", "flock", "held", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("held") > 20 })
	defer m.cutsOff()()
	m.livesOn() // so it is not one of those that are counted
	m.mayTakeOver()
	old := m.daemon()
	m.signal(unix.SIGABRT)
	// On a busy machine one that crashes at once ends too late to count.
	for range 30 {
		next := 0
		await(t, "the next one is there, or none goes on", func() bool {
			for _, pid := range children(m.watcher) {
				if pid != old && serves(pid) {
					next = pid
				}
			}
			return next != 0 || hold.ended()
		})
		if hold.ended() {
			break
		}
		old = next
		_ = unix.Kill(old, unix.SIGABRT)
		m.crashes++
	}
	hold.ends("the holder, whose mount is gone, ends")
	m.awaitNew(old)
	m.crashes++
	if x := m.mayTakeOver(); x.Count != 0 {
		t.Errorf("%+v", x)
	}
	if log := m.log(); !strings.Contains(log, "have died soon after, one after the other") {
		t.Error("the log does not say why")
	}
	if out, code := m.sh("flock -n held true"); code != 0 {
		t.Errorf("the lock of before: %d %s", code, out)
	}
}

// Who goes on is killed, too, at any moment: the third one goes on.
func TestTakeoverOfATakeover(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, withTakeover()...)
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("append", "flock", "held", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("held") > 20 })
	for i := 0; i < 12; i += long.Or(5, 1) {
		a.livesOn()
		stop := a.cutsOff()
		a.mayTakeOver()
		old := a.daemon()
		a.signal(unix.SIGKILL)
		next := 0
		await(t, "the next one is there", func() bool {
			for _, pid := range children(a.watcher) {
				if pid != old && serves(pid) {
					next = pid
				}
			}
			return next != 0
		})
		<-time.After(time.Duration(i) * 12 * time.Millisecond) // somewhere in what it does
		_ = unix.Kill(next, unix.SIGKILL)
		a.awaitNew(old)
		size := c.size("held")
		await(t, "the holder writes on", func() bool { return hold.ended() || c.size("held") > size+20 })
		if hold.ended() {
			stop()
			t.Fatalf("after %d: the holder has ended: %s", i, hold.out.String())
		}
		stop()
		if out, code := b.sh("flock -n held true"); code != 1 {
			t.Errorf("flock -n beside the holder: %d %s", code, out)
		}
	}
	if r := append(a.journal("--event", "lost,fenced"), b.journal("--event", "lost,fenced")...); len(r) > 0 {
		t.Errorf("lost: %+v", r)
	}
}

// A daemon is upgraded, and killed after that. When the watcher is killed, and who would watch
// in its place, there is no takeover until a daemon is started anew, and when all are the mount
// fails at once.
func TestTakeoverBesideOtherEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	hold := m.helper("append", "flock", "held", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("held") > 20 })
	m.upgraded()
	m.killed(unix.SIGKILL)
	m.upgraded()
	m.upgraded()
	m.killed(unix.SIGKILL)
	size := c.size("held")
	await(t, "the holder writes on", func() bool { return hold.ended() || c.size("held") > size+20 })
	if hold.ended() {
		t.Fatal(hold.out.String())
	}
	await(t, "there is one keeper", func() bool { return m.keepers() == 1 })

	defer m.cutsOff()()
	next := m.ready()
	_ = unix.Kill(m.watcher, unix.SIGSTOP) // it would start another one
	_ = unix.Kill(next, unix.SIGKILL)
	await(t, "who waits has ended", func() bool { return !alive(next) })
	m.killWatcher()
	await(t, "status says that there is no takeover", func() bool {
		s, err := m.status()
		return err == nil && !s.Takeover.Possible && s.Takeover.Why != ""
	})
	if n := m.keepers(); n != 0 {
		t.Errorf("%d keepers are left", n)
	}
	old := m.daemon()
	m.signal(unix.SIGKILL)
	m.awaitNew(old)
	hold.ends("the holder, whose mount is gone, ends")
	m.killed(unix.SIGKILL) // the next one has a watcher that has started it
	m.kill()
	// A call that finds the keeper still there ends with it.
	if _, err := os.Stat(m.dir); !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("the mount without anybody: %v", err)
	}
	await(t, "no keeper is left", func() bool { return m.keepers() == 0 })
	if _, err := os.Stat(m.dir); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("the mount without anybody: %v", err)
	}
	m.mount()
}

// A program that cannot go on, and the former one that cannot either for a while, leave no
// keeper: that would have open the mount and the state directory of which nobody knows, and
// the mount would hang when nobody takes over.
func TestUpgradeThatIsRefusedLeavesNoKeeper(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	hold := m.helper("append", "flock", "held", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("held") > 20 })
	m.mayTakeOver()
	defer m.cutsOff()()
	if out, err := c.try("upgrade", "--program", successorFile(t, cannotGoOn), m.dir); err == nil || !strings.Contains(err.Error(), "of the test") {
		t.Fatalf("the upgrade: %v %q", err, out)
	}
	m.mayTakeOver()
	await(t, "no other keeper is left", func() bool { return m.keepers() == 1 })
	size := c.size("held")
	await(t, "the holder writes on", func() bool { return hold.ended() || c.size("held") > size+20 })
	if hold.ended() {
		t.Fatalf("the holder has ended: %s", hold.out.String())
	}
}

// A daemon that is killed before it has said its will leaves a keeper that nobody was told
// of. It ends, too: it would have open the state directory, and the mount.
func TestTakeoverOfADaemonThatHasSaidNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	m.mayTakeOver()
	defer m.cutsOff()()
	old, known := m.daemon(), m.keeperPIDs()
	m.signal(unix.SIGSTOP)
	_ = unix.Kill(known[0], unix.SIGKILL) // nobody can take over: the next one begins anew
	m.signal(unix.SIGKILL)
	killed := 0
	for range 3 {
		await(t, "the next one has a keeper", func() bool {
			var list []int
			for _, pid := range m.keeperPIDs() {
				if !slices.Contains(known, pid) {
					list = append(list, pid)
				}
			}
			if len(list) == 0 {
				return false
			}
			for _, pid := range children(m.watcher) {
				if pid != old && serves(pid) && !slices.Contains(list, pid) {
					_ = unix.Kill(pid, unix.SIGKILL)
					old, killed = pid, killed+1
				}
			}
			known = append(known, list...)
			return true
		})
	}
	m.awaitNew(old)
	if killed == 0 {
		t.Error("none was killed")
	}
	if out, code := m.sh("echo x >after && cat after"); code != 0 {
		t.Errorf("the mount after that: %d %s", code, out)
	}
	m.mayTakeOver()
	await(t, "there is one keeper", func() bool { return m.keepers() == 1 })
}
