package fusefs

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

func (m *testMount) wantOpenLocks(name string, n int) {
	m.t.Helper()
	if got := m.holders(name, locks.Open); got != n {
		m.t.Errorf("%s: %d open locks, want %d", name, got, n)
	}
}

func (m *testMount) awaitOpenLocks(name string, n int) {
	m.t.Helper()
	await(m.t, fmt.Sprintf("%s has %d open locks", name, n), func() bool { return m.holders(name, locks.Open) == n })
}

func TestOpenTakesALock(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("f"), "content")
	p := startProgram(t, m.dir, nil)
	for _, c := range []struct{ how, mode string }{
		{"r", "R"}, {"w", "W"}, {"rw", "W"}, {"r,trunc", "W"}, {"w,append", "W"}, {"r,creat", "R"}, {"rw,creat", "W"},
	} {
		m.calls()
		fd := p.open("f", c.how)
		id := handleOf(t, m.calls("f"), "lock open:f owner=1 h=%s "+c.mode+" [all] try=false path=f")
		m.wantOpenLocks("f", 1)
		p.want("ok", "close %d", fd)
		m.awaitOpenLocks("f", 0)
		if got := fmt.Sprint(m.calls("f")); !strings.Contains(got, "unlockhandle open:f h="+id) {
			t.Errorf("%s: at close: %s", c.how, got)
		}
	}
	m.calls()
	p.want("ok", "truncate f 3")
	handleOf(t, m.calls("f"), "lock open:f owner=1 h=%s W [all] try=false path=f")
	m.wantOpenLocks("f", 0)
}

// handleOf finds the number in a call that the format describes.
func handleOf(t *testing.T, calls []string, format string) string {
	t.Helper()
	before, after, _ := strings.Cut(format, "%s")
	for _, c := range calls {
		if rest, ok := strings.CutPrefix(c, before); ok {
			if id, ok := strings.CutSuffix(rest, after); ok {
				return id
			}
		}
	}
	t.Fatalf("the locker was asked %q, not %s", calls, format)
	return ""
}

func TestAnOpenLockLastsAsLongAsTheOpenFile(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("f"), "content of a file")
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	p.want("ok", "keep %d", fd)
	second := strings.TrimPrefix(p.do("dup %d", fd), "ok ")
	p.want("ok", "close %d", fd)
	m.wantOpenLocks("f", 1)
	p.want("ok", "map %s 17", second)
	p.want("ok", "close %s", second)
	m.wantOpenLocks("f", 1) // still mapped
	p.want("ok", "unmap")
	m.awaitOpenLocks("f", 0)
	p.open("f", "r")
	m.wantOpenLocks("f", 1)
	p.kill()
	m.awaitOpenLocks("f", 0)
}

func TestOtherFilesTakeNoOpenLock(t *testing.T) {
	m := mount(t)
	must(t, os.Mkdir(m.backing("d"), 0o755))
	must(t, unix.Mkfifo(m.backing("p"), 0o600))
	writeFile(t, m.backing("f"), "")
	must(t, os.Symlink("f", m.backing("s")))
	p := startProgram(t, m.dir, nil)
	m.calls()
	p.open("d", "r,dir")
	p.open("p", "rw")
	p.open("f", "path")
	p.do("stat s")
	p.do("chmod f 0600")
	p.do("rename f g")
	if got := m.calls(); len(got) > 0 {
		t.Errorf("the locker was asked %q", got)
	}
}

func TestAProgramThatRunsIsLocked(t *testing.T) {
	m := mount(t)
	exe, err := os.ReadFile("/bin/sleep")
	must(t, err)
	must(t, os.WriteFile(m.backing("sleep"), exe, 0o755))
	proc, err := os.StartProcess(m.path("sleep"), []string{"sleep", "1000"}, &os.ProcAttr{})
	must(t, err)
	m.wantOpenLocks("sleep", 1)
	proc.Kill()
	proc.Wait()
	m.awaitOpenLocks("sleep", 0)
}

func TestOpenWaitsForAnotherHost(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("f"), "content")
	p := startProgram(t, m.dir, nil)

	drop := m.remote("f", locks.Open, locks.Write)
	p.want("EAGAIN", "open f r,nonblock")
	p.tell("open f rw,trunc")
	p.sleeping()
	if got := readFile(t, m.backing("f")); got != "content" {
		t.Errorf("truncated before the lock was granted: %q", got)
	}
	writeFile(t, m.backing("f"), "written by the holder")
	drop()
	if got := p.answer(); !strings.HasPrefix(got, "ok") {
		t.Fatal(got)
	}
	if got := readFile(t, m.backing("f")); got != "" {
		t.Errorf("not truncated: %q", got)
	}
	m.wantOpenLocks("f", 1)
}

func TestReadersOfTwoHostsDoNotWait(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("f"), "content")
	drop := m.remote("f", locks.Open, locks.Read)
	defer drop()
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "r,nonblock")
	p.want("ok content", "read %d 0 100", fd)
	p.want("EAGAIN", "open f rw,nonblock")
}

func TestSignalsEndTheWaitOfAnOpen(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("f"), "content")
	drop := m.remote("f", locks.Open, locks.Write)
	defer drop()
	for _, call := range []string{"open f r", "truncate f 0"} {
		t.Setenv("DMXFS_TEST_CATCH", "1")
		p := startProgram(t, m.dir, nil)
		p.tell("%s", call)
		p.sleeping()
		must(t, p.cmd.Process.Signal(syscall.SIGUSR1))
		if got := p.answer(); got != "EINTR" {
			t.Errorf("%s: %s", call, got)
		}
		p.tell("%s", call)
		p.sleeping()
		p.kill()
	}
	if got := readFile(t, m.backing("f")); got != "content" {
		t.Errorf("the file has %q", got)
	}
	m.wantOpenLocks("f", 0)
}

// The kernel holds the lock of the directory during a creation.
func TestCreationDoesNotWaitForTheLock(t *testing.T) {
	m := mount(t)
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	ask[None](m, "Suspend", true) // no grants

	for i, how := range []string{"rw,creat", "rw,creat,excl", "w,creat,trunc"} {
		name := fmt.Sprint("f", i)
		fd := p.open(name, how)
		q.want("ok", "mkdir d%d 0755", i) // the directory is free
		p.tell("write %d 0 text", fd)
		if got := readFile(t, m.backing(name)); got != "" {
			t.Errorf("%s: written without the lock: %q", how, got)
		}
		ask[None](m, "Suspend", false)
		if got := p.answer(); got != "ok" {
			t.Errorf("%s: write: %s", how, got)
		}
		m.wantOpenLocks(name, 1)
		if got := readFile(t, m.backing(name)); got != "text" {
			t.Errorf("%s: %q", how, got)
		}
		p.want("ok", "close %d", fd)
		m.awaitOpenLocks(name, 0)
		ask[None](m, "Suspend", true)
	}

	// Closed before it was granted.
	fd := p.open("never", "rw,creat")
	p.want("ok", "close %d", fd)
	await(t, "the request is withdrawn", func() bool {
		return strings.Contains(fmt.Sprint(m.calls("never")), "withdrawn open:never")
	})
	ask[None](m, "Suspend", false)
	m.wantOpenLocks("never", 0)

	fd = startProgram(t, m.dir, nil).open(".", "rw,tmpfile")
	if fd < 0 {
		t.Error("no temporary file")
	}
}

func TestAProgramThatLocksForItselfIsLeftToIt(t *testing.T) {
	m := mount(t)
	for _, n := range []string{"f", "g", "h"} {
		writeFile(t, m.backing(n), n)
	}
	for _, call := range []string{"flock %d ex", "flock %d un", "lk %d set r 0 1", "lk %d set u 0 1", "lk %d ofdset r 0 1"} {
		p, other := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
		f, _, h := p.open("f", "rw"), p.open("g", "rw"), other.open("h", "rw")
		m.wantOpenLocks("f", 1)
		m.wantOpenLocks("g", 1)
		p.want("ok u 0 1 pid=0", "lk %d get w 0 1", f) // looking is not locking
		m.wantOpenLocks("f", 1)
		p.want("ok", call, f)
		m.wantOpenLocks("f", 0)
		m.wantOpenLocks("g", 0)
		m.wantOpenLocks("h", 1) // another program
		p.open("h", "rw")
		p.open("new", "rw,creat")
		m.wantOpenLocks("h", 1)
		m.wantOpenLocks("new", 0)
		// Over execve(2) it is the same process.
		p.want("ok", "exec again")
		p.want("ok h", "cat h")
		p.open("g", "r")
		m.wantOpenLocks("g", 0)
		other.want("ok", "close %d", h)
		p.kill()
		other.kill()
		m.awaitOpenLocks("h", 0)
	}
}

// exec 9>lock; flock 9: the shell opens, flock(1) locks.
func TestTheOpenerOfALockFileIsSelfLocking(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("lock"), "")
	writeFile(t, m.backing("data"), "")
	shell := startProgram(t, m.dir, nil)
	fd := shell.open("lock", "rw")
	data := shell.open("data", "rw")
	_ = data
	m.wantOpenLocks("data", 1)
	f, err := os.Open(fmt.Sprintf("/proc/%d/fd/%d", shell.cmd.Process.Pid, fd))
	must(t, err)
	f.Close()
	shared := shareDescriptor(t, shell, fd)
	flock := startProgram(t, m.dir, nil, shared)
	shared.Close()
	flock.want("ok", "flock 3 ex")
	m.wantOpenLocks("data", 0) // the shell's
	m.wantOpenLocks("lock", 0)
	shell.open("data", "rw")
	m.wantOpenLocks("data", 0)
	flock.open("data", "r")
	m.wantOpenLocks("data", 0)
}

// shareDescriptor takes a descriptor of another process: the same open file.
func shareDescriptor(t *testing.T, p *testProgram, fd int) *os.File {
	t.Helper()
	pidfd, err := unix.PidfdOpen(p.cmd.Process.Pid, 0)
	must(t, err)
	defer unix.Close(pidfd)
	got, err := unix.PidfdGetfd(pidfd, fd, 0)
	must(t, err)
	return os.NewFile(uintptr(got), "shared")
}

// A program that begins to lock for itself must not wait for what it does not
// need any more.
func TestAWaitingOpenEndsWhenItsProcessBeginsToLock(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("f"), "f")
	writeFile(t, m.backing("lock"), "")
	drop := m.remote("f", locks.Open, locks.Write)
	defer drop()
	opened := make(chan error, 1)
	go func() {
		fd, err := unix.Open(m.path("f"), unix.O_RDWR, 0)
		unix.Close(fd)
		opened <- err
	}()
	await(t, "the open waits", func() bool { return strings.Contains(fmt.Sprint(m.calls("f")), "lock open:f") })
	l, err := os.Open(m.path("lock"))
	must(t, err)
	defer l.Close()
	must(t, unix.Flock(int(l.Fd()), unix.LOCK_EX))
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestRules(t *testing.T) {
	t.Run("no open locks", func(t *testing.T) {
		m := mount(t, noOpenLocks)
		writeFile(t, m.backing("f"), "f")
		p := startProgram(t, m.dir, nil)
		p.open("f", "rw")
		p.open("g", "rw,creat")
		p.want("ok", "truncate f 0")
		if got := m.calls(); len(got) > 0 {
			t.Errorf("the locker was asked %q", got)
		}
	})
	t.Run("between processes", func(t *testing.T) {
		m := mount(t, func(c *childConfig) { c.Rule = &Rule{Open: true, PerProcess: true} })
		writeFile(t, m.backing("f"), "f")
		a, b := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
		fd := a.open("f", "rw")
		a.open("f", "rw,nonblock") // the same process
		b.want("EAGAIN", "open f r,nonblock")
		// The lock of a new file is had before it is open.
		a.open("new", "w,creat")
		b.want("EAGAIN", "open new w,nonblock")
		m.wantOpenLocks("new", 1)
		b.want("EAGAIN", "open new w,creat,nonblock")
		a.open("new2", "w,creat,excl")
		m.awaitOpenLocks("new2", 1)
		a.kill()
		m.awaitOpenLocks("f", 0)
		b.open("f", "r,nonblock")
		_ = fd
	})
}

func TestAnIdleOpenLockGivesWay(t *testing.T) {
	m := mount(t, func(c *childConfig) {
		c.Rule = &Rule{Open: true, Yield: time.Millisecond}
		c.TTL = time.Hour
	})
	writeFile(t, m.backing("f"), "old content")
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	p.want("ok old content", "read %d 0 100", fd)
	m.wantOpenLocks("f", 1)

	drop := m.remote("f", locks.Open, locks.Write) // waits until it gives way
	m.wantOpenLocks("f", 0)
	writeFile(t, m.backing("f"), "new and longer content")
	p.tell("read %d 0 100", fd)
	p.sleeping()
	drop()
	if got := p.answer(); got != "ok new and longer content" {
		t.Errorf("read: %s", got)
	}
	m.wantOpenLocks("f", 1)

	drop = m.remote("f", locks.Open, locks.Write)
	writeFile(t, m.backing("f"), "third")
	p.tell("write %d 5 +mine", fd)
	p.sleeping()
	if got := readFile(t, m.backing("f")); got != "third" {
		t.Errorf("written without the lock: %q", got)
	}
	drop()
	if got := p.answer(); got != "ok" {
		t.Errorf("write: %s", got)
	}
	p.want("ok third+mine", "read %d 0 100", fd)

	// A mapping, too.
	p.want("ok", "map %d 10", fd)
	p.want("ok third+mine", "peek 0 10")
	p.want("ok", "poke 0 THIRD")
	drop = m.remote("f", locks.Open, locks.Write)
	if got := readFile(t, m.backing("f")); got != "THIRD+mine" {
		t.Errorf("the other host finds %q", got)
	}
	writeFile(t, m.backing("f"), "4444444444")
	p.tell("peek 0 10")
	drop()
	if got := p.answer(); got != "ok 4444444444" {
		t.Errorf("the mapping shows: %s", got)
	}
}

// I/O that takes the lock again is I/O on a regular file: signals that have a
// handler do not interrupt it, and the others end the process.
func TestSignalsDoNotInterruptIO(t *testing.T) {
	t.Setenv("DMXFS_TEST_CATCH", "1")
	m := mount(t, func(c *childConfig) { c.Rule = &Rule{Open: true, Yield: time.Millisecond} })
	writeFile(t, m.backing("f"), "content")
	for _, call := range []string{"read %d 0 100", "write %d 0 CONTENT", "fallocate %d 100"} {
		p := startProgram(t, m.dir, nil)
		fd := p.open("f", "rw")
		drop := m.remote("f", locks.Open, locks.Write)
		p.tell(call, fd)
		p.sleeping()
		must(t, p.cmd.Process.Signal(syscall.SIGUSR1))
		must(t, p.cmd.Process.Signal(syscall.SIGWINCH))
		p.sleeping()
		drop()
		if got := p.answer(); !strings.HasPrefix(got, "ok") {
			t.Errorf("%s: %s", call, got)
		}
		drop = m.remote("f", locks.Open, locks.Write)
		p.tell(call, fd)
		p.sleeping()
		must(t, p.cmd.Process.Signal(syscall.SIGUSR1))
		p.kill() // returns when it is dead
		drop()
		m.awaitOpenLocks("f", 0)
	}
}

func TestStrictRulesDoNotGiveWay(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.Rule = &Rule{Open: true} })
	writeFile(t, m.backing("f"), "")
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	got := make(chan int, 1)
	go func() {
		var id int
		m.Call("Child.Hold", HoldArgs{m.key("f", locks.Open), locks.Write, locks.Whole}, &id)
		got <- id
	}()
	select {
	case <-got:
		t.Error("it gave way")
	case <-time.After(2 * sweepInterval): // longer than any yielding would take
	}
	p.want("ok", "close %d", fd)
	<-got
}

// Hosts that replace a file by rename(2) while others wait to open it.
func TestTheFileOfANameIsReplacedDuringTheWait(t *testing.T) {
	for _, ttl := range []time.Duration{-1, time.Hour} {
		m := mount(t, func(c *childConfig) { c.TTL = ttl })
		writeFile(t, m.backing("f"), "0")
		readFile(t, m.path("f"))
		p := startProgram(t, m.dir, nil)
		drop := m.remote("f", locks.Open, locks.Write)
		p.tell("open f rw")
		p.sleeping()
		for i := 1; i <= 5; i++ {
			writeFile(t, m.backing("new"), fmt.Sprint(i))
			next := m.remote("new", locks.Open, locks.Write) // the next writer has it already
			must(t, os.Rename(m.backing("new"), m.backing("f")))
			drop()
			drop = next
			await(t, "it waits for the new file", func() bool {
				return strings.Contains(fmt.Sprint(m.calls("f")), "lock open:f")
			})
		}
		drop()
		got := p.answer()
		if !strings.HasPrefix(got, "ok ") {
			t.Fatalf("TTL %v: %s", ttl, got)
		}
		p.want("ok 5", "read %s 0 10", strings.TrimPrefix(got, "ok "))
		m.wantOpenLocks("f", 1)
		p.kill()
		m.awaitOpenLocks("f", 0)
	}
}
