package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The scheduler prefers the processes of a mount while one daemon goes on in the place of
// another, where that is allowed, and nobody has decided otherwise; and at no other time.
func TestADaemonThatGoesOnIsPreferred(t *testing.T) {
	runtime.LockOSThread() // what this thread starts has its nice value
	defer runtime.UnlockOSThread()
	had, err := niceOf(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -10); err != nil {
		t.Skip("not allowed here:", err)
	}
	for _, x := range []struct {
		nice, meanwhile int
		arg             string
	}{{0, -10, "--takeover"}, {3, 3, "--takeover"}, {0, 0, "--takeover=false"}} {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, x.nice); err != nil {
			t.Skip(err)
		}
		m := newCluster(t, 1, x.arg).mounts[0]
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, had); err != nil {
			t.Fatal(err)
		}
		old, sessions := m.daemon(), x.nice == 0
		if err := haveNice(x.nice, sessions, old, m.watcher); err != nil {
			t.Errorf("started with %d, %s: %v", x.nice, x.arg, err)
		}
		if x.arg != "--takeover" {
			continue
		}
		next := m.ready()
		if err := haveNice(x.nice, sessions, next); err != nil {
			t.Errorf("started with %d, who waits to go on: %v", x.nice, err)
		}
		if err := unix.Kill(next, unix.SIGSTOP); err != nil { // so that the takeover lasts
			t.Fatal(err)
		}
		await(t, "who goes on next stands still", func() bool { return standsStill(next) })
		m.signal(unix.SIGKILL)
		awaitNice(t, "in the takeover", x.meanwhile, sessions, next, m.watcher)
		if err := unix.Kill(next, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		m.awaitNew(old)
		if new := m.daemon(); new != next {
			t.Errorf("process %d has gone on, and not %d", new, next)
		}
		awaitNice(t, "after it", x.nice, sessions, next, m.watcher, m.ready())
	}
}

// The monitor of a daemon's runtime looks more seldom than by itself, also when another daemon
// has gone on.
func TestTheMonitorOfADaemonIsCalm(t *testing.T) {
	t.Parallel()
	m := newCluster(t, 1, "--takeover").mounts[0]
	calm := func(pid int) func() bool {
		return func() bool {
			for _, tid := range threadsOf(t, pid) {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%s/timerslack_ns", tid))
				if errors.Is(err, unix.EPERM) {
					t.Skip("not allowed here:", err)
				}
				if string(b) == "250000\n" {
					return true
				}
			}
			return false
		}
	}
	await(t, "the monitor of the first daemon is calm", calm(m.daemon()))
	m.killed(unix.SIGKILL)
	await(t, "the monitor of the next one is calm", calm(m.daemon()))
}

// threadsOf are the threads of a process.
func threadsOf(t *testing.T, pid int) (tids []string) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range threads {
		tids = append(tids, e.Name())
	}
	return tids
}

// awaitNice waits until processes have a nice value.
func awaitNice(t *testing.T, when string, nice int, sessions bool, pids ...int) {
	t.Helper()
	var err error
	defer func() {
		if err != nil {
			t.Log(when, err)
		}
	}()
	await(t, fmt.Sprintf("all have nice value %d %s", nice, when), func() bool {
		err = haveNice(nice, sessions, pids...)
		return err == nil
	})
}

// haveNice looks whether all threads of some processes have a nice value, and their sessions
// too, if sessions have them.
func haveNice(want int, sessions bool, pids ...int) error {
	for _, pid := range pids {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, e := range threads {
			tid := 0
			if _, err := fmt.Sscan(e.Name(), &tid); err != nil {
				return err
			}
			if nice, err := niceOf(tid); err != unix.ESRCH && nice != want { // it may have ended
				return fmt.Errorf("thread %d of process %d has nice value %d, want %d", tid, pid, nice, want)
			}
		}
		if group, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", pid)); sessions && err == nil && !strings.HasSuffix(string(group), fmt.Sprintf(" nice %d\n", want)) {
			return fmt.Errorf("process %d is in the group %q, want %d", pid, group, want)
		}
	}
	return nil
}

// niceOf is the nice value of a thread.
func niceOf(tid int) (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	return 20 - n, err // as the system call has it
}
