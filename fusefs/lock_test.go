package fusefs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
)

// noOpenLocks is for tests that are about explicit locks only.
func noOpenLocks(c *childConfig) { c.Rule = &Rule{} }

// calls are the locker's calls since the last time, with the file's name for
// its number.
func (m *testMount) calls(names ...string) []string {
	m.t.Helper()
	cs := ask[[]string](m, "Calls", None{})
	for i := range cs {
		for _, n := range names {
			cs[i] = strings.ReplaceAll(cs[i], m.key(n, 0).File+" ", n+" ")
		}
	}
	return cs
}

func wantCalls(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the locker was asked\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestFlockIsPassedOn(t *testing.T) {
	m := mount(t, noOpenLocks)
	writeFile(t, m.backing("f"), "")
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "r")
	m.calls()
	p.want("ok", "flock %d sh", fd)
	p.want("ok", "flock %d ex nb", fd)
	p.want("ok", "flock %d un", fd)
	wantCalls(t, m.calls("f"),
		"lock flock:f owner=1 h=1 R [all] try=false path=f",
		"lock flock:f owner=1 h=1 W [all] try=true path=f",
		"unlock flock:f [all]")
}

func TestFcntlIsPassedOn(t *testing.T) {
	m := mount(t, noOpenLocks)
	must(t, os.Mkdir(m.backing("d"), 0o755))
	writeFile(t, m.backing("d/f"), "0123456789")
	p := startProgram(t, m.dir, nil)
	fd := p.open("d/f", "rw")
	m.calls()
	p.want("ok", "lk %d set w 5 10", fd)
	p.want("ok", "lk %d setw r 7 0", fd) // to the end, whatever it will be
	p.want("ok", "lk %d ofdset r 0 1", fd)
	p.want("ok", "lk %d set u 6 2", fd)
	p.want("EINVAL", "lk %d set w -1 1", fd)
	wantCalls(t, m.calls("d/f"),
		"lock posix:d/f owner=? h=1 W [5,15) try=true path=d/f",
		"lock posix:d/f owner=? h=1 R [7,eof) try=false path=d/f",
		"lock posix:d/f owner=? h=1 R [0,1) try=true path=d/f",
		"unlock posix:d/f [6,8)")
}

func TestWhoseLockIsInTheWay(t *testing.T) {
	m := mount(t, noOpenLocks)
	writeFile(t, m.backing("f"), "")
	a, b := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	fa, fb := a.open("f", "rw"), b.open("f", "rw")
	a.want("ok", "lk %d set w 10 20", fa)
	b.want(fmt.Sprintf("ok w 10 20 pid=%d", a.cmd.Process.Pid), "lk %d get r 0 0", fb)
	b.want("ok u 0 5 pid=0", "lk %d get w 0 5", fb)
	a.want("ok u 0 0 pid=0", "lk %d get w 0 0", fa) // its own
	b.want("EAGAIN", "lk %d set r 0 0", fb)

	id := ask[int](m, "Hold", HoldArgs{m.key("f", locks.Posix), locks.Read, locks.Range{Start: 100, End: locks.MaxOffset}})
	b.want("ok r 100 0 pid=0", "lk %d get w 50 0", fb) // of a process that this host does not have
	b.want("ok u 50 0 pid=0", "lk %d get r 50 0", fb)
	b.want("EAGAIN", "lk %d set w 50 0", fb)
	ask[None](m, "Drop", id)
	b.want("ok", "lk %d set w 50 0", fb)
}

// fcntl(2): "If a process closes any file descriptor referring to a file, then
// all of the process's locks on that file are released".
func TestPosixLocksEndAtAnyClose(t *testing.T) {
	m := mount(t, noOpenLocks)
	writeFile(t, m.backing("f"), "")
	p := startProgram(t, m.dir, nil)
	one, two := p.open("f", "rw"), p.open("f", "r")
	p.want("ok", "lk %d set w 0 10", one)
	p.want("ok", "lk %d ofdset w 50 10", one)
	p.want("ok", "flock %d ex", one)
	if n := m.holders("f", locks.Posix); n != 2 {
		t.Fatalf("%d locks", n)
	}
	p.want("ok", "close %d", two)
	if n := m.holders("f", locks.Posix); n != 1 { // the OFD lock stays
		t.Errorf("%d locks are left", n)
	}
	if n := m.holders("f", locks.Flock); n != 1 {
		t.Errorf("%d flock locks are left", n)
	}
	p.want("ok", "close %d", one)
	await(t, "the last close ends the others", func() bool {
		return m.holders("f", locks.Posix)+m.holders("f", locks.Flock) == 0
	})
}

// flock(2): "the lock is released either by an explicit LOCK_UN operation on
// any of these duplicate file descriptors, or when all such file descriptors
// have been closed"; fcntl(2): "Record locks are not inherited by a child".
func TestLocksOfAnOpenFileThatProcessesShare(t *testing.T) {
	m := mount(t, noOpenLocks)
	writeFile(t, m.backing("f"), "")
	f, err := os.OpenFile(m.path("f"), os.O_RDWR, 0)
	must(t, err)
	a, b := startProgram(t, m.dir, nil, f), startProgram(t, m.dir, nil, f)
	f.Close()
	a.want("ok", "flock 3 ex")
	a.want("ok", "lk 3 set w 0 10")
	b.want("EAGAIN", "lk 3 set w 0 10")
	b.want("ok", "flock 3 ex nb") // it has it already
	b.want("ok", "close 3")       // its locks, not those of a
	if n := m.holders("f", locks.Posix); n != 1 {
		t.Errorf("a close by another process left %d locks", n)
	}
	if n := m.holders("f", locks.Flock); n != 1 {
		t.Errorf("a close by another process left %d flock locks", n)
	}
	a.kill()
	await(t, "the last process has gone", func() bool {
		return m.holders("f", locks.Posix)+m.holders("f", locks.Flock) == 0
	})
}

func TestWaitingForALock(t *testing.T) {
	m := mount(t, noOpenLocks)
	writeFile(t, m.backing("f"), "")
	for _, c := range []struct {
		class    locks.Class
		try, get string
	}{
		{locks.Flock, "flock %d ex nb", "flock %d ex"},
		{locks.Posix, "lk %d set w 0 1", "lk %d setw w 0 1"},
		{locks.Posix, "lk %d ofdset w 0 1", "lk %d ofdsetw w 0 1"},
	} {
		t.Run(c.get, func(t *testing.T) {
			p := startProgram(t, m.dir, nil)
			fd := p.open("f", "rw")
			drop := m.remote("f", c.class, locks.Read)
			p.want("EAGAIN", c.try, fd)
			p.tell(c.get, fd)
			p.sleeping()
			drop()
			if got := p.answer(); got != "ok" {
				t.Errorf("after the wait: %s", got)
			}
			if n := m.holders("f", c.class); n != 1 {
				t.Errorf("%d locks", n)
			}
		})
	}
}

func TestASignalEndsAWait(t *testing.T) {
	m := mount(t, noOpenLocks)
	writeFile(t, m.backing("f"), "")
	drop := m.remote("f", locks.Flock, locks.Write)
	defer drop()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		p := startProgram(t, m.dir, nil)
		fd := p.open("f", "rw")
		m.calls()
		p.tell("flock %d ex", fd)
		p.sleeping()
		await(t, "the locker is asked", func() bool { return len(m.calls("f")) > 0 })
		must(t, p.cmd.Process.Signal(sig))
		p.cmd.Wait()
		await(t, fmt.Sprintf("%v: the request is withdrawn", sig), func() bool {
			return slices.ContainsFunc(m.calls("f"), func(c string) bool { return strings.HasPrefix(c, "withdrawn flock:f") })
		})
	}
	if n := m.holders("f", locks.Flock); n != 0 {
		t.Errorf("%d locks", n)
	}
}

// A signal handler with SA_RESTART makes the kernel send the request again.
func TestAWaitGoesOnAfterASignalHandler(t *testing.T) {
	m := mount(t, noOpenLocks)
	writeFile(t, m.backing("f"), "")
	drop := m.remote("f", locks.Flock, locks.Write)
	t.Setenv("DMXFS_TEST_CATCH", "1")
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	m.calls()
	p.tell("flock %d ex", fd)
	p.sleeping()
	var got []string
	must(t, p.cmd.Process.Signal(syscall.SIGUSR1))
	await(t, "the request came again", func() bool {
		got = append(got, m.calls("f")...)
		return len(got) >= 3
	})
	drop()
	if a := p.answer(); a != "ok" {
		t.Errorf("flock: %s", a)
	}
	const lock = "lock flock:f owner=1 h=1 W [all] try=false path=f"
	wantCalls(t, got[:3], lock, "withdrawn flock:f h=1", lock)
}
