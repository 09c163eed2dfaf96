package fusefs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/locks"
)

// flushed is Flush of a key, which must return although nothing is admitted.
func (k *keptMount) flushed(of locks.Key) {
	k.t.Helper()
	begin := time.Now()
	k.within("it is flushed", func() { ask[None](k.testMount, "Flush", of) })
	if took := time.Since(begin); took >= redoTime {
		k.t.Errorf("the flush took %v", took)
	}
}

// A node that goes on is live only when what it owes others is written out: a write that
// has to wait for that holds nothing up, and is done under the lock that it had.
func TestKilledFlushDoesNotWaitForWhatIsToBeDone(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		op                   uint32
		before, call, result string
	}{
		{opWrite, "", "write FD 0 jelly", "jelly"},
		{opSetAttr, "", "ftruncate FD 3", "hel"},
		{opWrite, "flock FD ex", "write FD 0 jelly", "jelly"},
	} {
		m := mountKept(t)
		m.conf.Kept.Suspended = true
		p := startProgram(t, m.dir, nil)
		p.want("ok", "put f hello")
		fd := p.open("f", "rw")
		if x.before != "" {
			p.want("ok", "%s", withFD(x.before, fd))
		}
		m.crashAt(Crash{Op: x.op, Where: atBegun})
		p.tell("%s", withFD(x.call, fd))
		m.succeeded()
		for _, c := range []locks.Class{locks.Open, locks.Flock} {
			m.flushed(m.key("f", c))
		}
		if b, err := os.ReadFile(m.backing("f")); err != nil || string(b) != "hello" {
			t.Errorf("%s: before the node is live the file has %q (%v)", x.call, b, err)
		}
		ask[None](m.testMount, "Suspend", false)
		if got := m.answer(p); got != "ok" {
			t.Errorf("%s: %s", x.call, got)
		}
		if b, err := os.ReadFile(m.backing("f")); err != nil || string(b) != x.result {
			t.Errorf("%s: the file has %q, want %q (%v)", x.call, b, x.result, err)
		}
	}
}

// A write that was begun waits for the node to be live, for longer than others usually stand behind
// one; then it is done.
func TestKilledGivesUpForNobody(t *testing.T) {
	t.Parallel()
	m := mountKept(t, func(c *childConfig) { c.Hold = 100 * time.Millisecond })
	m.conf.Kept.Suspended = true
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	fd := p.open("f", "rw")
	p.want("ok", "flock %d ex", fd)
	q.open("f", "r")
	m.crashAt(Crash{Op: opWrite, Where: atCalled})
	p.tell("write %d 0 jelly", fd)
	m.succeeded()
	q.tell("chmod f 384")
	await(t, "it stands behind the write", func() bool {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", q.cmd.Process.Pid))
		return statusWord(status, "State:") == "D"
	})
	looks := func() int { return ask[Counts](m.testMount, "Counts", None{}).Looks }
	from := looks()
	await(t, "it was looked at", func() bool { return looks() > from+2*holdLooks })
	ask[None](m.testMount, "Suspend", false)
	for _, x := range []*testProgram{p, q} {
		if got := m.answer(x); got != "ok" {
			t.Error(got)
		}
	}
}

// What was begun under a lock that another host has had since, and written under it, is not
// done again, though the program may have locked anew.
func TestKilledFailsWhenAnotherHadTheLock(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		op         uint32
		call       string
		where      string
		locksAgain bool
	}{
		{opWrite, "write FD 0 jelly", atBegun, false},
		{opWrite, "write FD 0 jelly", atCalled, true},
		{opWrite, "write FD 0 jelly", atBegun, true},
		{9, "mkdir d 0700", atCalled, false},
		{9, "mkdir d 0700", atBegun, true},
	} {
		other, err := recent.Create()
		must(t, err)
		t.Cleanup(func() { other.Close() })
		m := mountKept(t)
		m.conf.Kept.Suspended = true
		m.conf.Kept.Alone, m.conf.Kept.PID, m.conf.Kept.Other = false, os.Getpid(), other.FD()
		p := startProgram(t, m.dir, nil)
		p.want("ok", "put f hello")
		fd, lock := p.open("f", "rw"), p.open("lock", "rw,creat")
		p.want("ok", "flock %d ex", lock)
		m.crashAt(Crash{Op: x.op, Where: x.where})
		p.tell("%s", withFD(x.call, fd))
		m.succeeded()
		// Another thread of it unlocks, which is not careful.
		pidfd, err := unix.PidfdOpen(p.cmd.Process.Pid, 0)
		must(t, err)
		its, err := unix.PidfdGetfd(pidfd, lock, 0)
		must(t, err)
		unix.Close(pidfd)
		m.within("it is unlocked", func() { must(t, unix.Flock(its, unix.LOCK_UN)) })
		var drop func()
		m.within("the other host has it", func() { drop = m.remote("lock", locks.Flock, locks.Write) })
		var st unix.Stat_t
		must(t, unix.Stat(m.backing("f"), &st))
		n := recent.Content(st.Ino)
		under := other.Begin(&n, recent.Alters)
		writeFile(t, m.backing("f"), "other")
		other.End(under, recent.Changed)
		drop()
		locked := make(chan error, 1)
		if x.locksAgain {
			go func() { locked <- unix.Flock(its, unix.LOCK_EX) }()
		} else {
			locked <- nil
		}
		ask[None](m.testMount, "Suspend", false)
		if got := m.answer(p); got != "EIO" {
			t.Errorf("%s at %s: %s", x.call, x.where, got)
		}
		m.within("it is locked again", func() { must(t, <-locked) })
		unix.Close(its)
		if b, err := os.ReadFile(m.backing("f")); err != nil || string(b) != "other" {
			t.Errorf("%s at %s: the file has %q (%v)", x.call, x.where, b, err)
		}
		p.want("ok", "write %d 0 after", fd)
	}
}

// An open lock does not yield before what was begun under it is decided, for a while; and
// then what is not decided fails.
func TestOpenLocksStayForWhatIsNotDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d redo
		if d.keeps() {
			t.Error("nothing is to be decided")
		}
		a, b := &past{phase: phaseBegun}, &past{phase: phaseBegun}
		d.expect(2)
		time.Sleep(time.Hour) // not live
		if !d.keeps() {
			t.Error("it yields")
		}
		time.Sleep(redoTime - time.Millisecond)
		d.decide(a)
		d.decide(a)
		if !d.keeps() || d.late.Load() {
			t.Error("it yields too early")
		}
		time.Sleep(time.Millisecond)
		if d.keeps() || !d.late.Load() {
			t.Error("it never yields, or what is not decided does not fail")
		}
		f := &fence{base: &base{}}
		f.redo.late.Store(true)
		if f.heldThrough(&change{back: true}, &step{protected: 1}) || !f.heldThrough(&change{}, &step{}) {
			t.Error("what was protected does not fail, or what was not does")
		}
		if d.decide(b); d.keeps() || d.some.Load() {
			t.Error("it is not over")
		}
	})
}

func withFD(call string, fd int) string { return strings.ReplaceAll(call, "FD", strconv.Itoa(fd)) }
