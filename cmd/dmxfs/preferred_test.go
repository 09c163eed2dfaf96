package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The scheduler prefers the processes of a mount with a takeover, where that is allowed, and
// nobody has decided otherwise.
func TestADaemonThatCanBeSucceededIsPreferred(t *testing.T) {
	runtime.LockOSThread() // what this thread starts has its nice value
	defer runtime.UnlockOSThread()
	had, err := niceOf(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		nice, want int
		arg        string
	}{{0, -10, "--takeover"}, {3, 3, "--takeover"}, {0, 0, "--takeover=false"}} {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, x.nice); err != nil {
			t.Skip(err)
		}
		m := newCluster(t, 1, x.arg).mounts[0]
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, had); err != nil {
			t.Fatal(err)
		}
		all := []int{m.daemon(), m.watcher}
		if x.want != 0 {
			all = append(all, m.ready())
		}
		for _, pid := range all {
			threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range threads {
				tid := 0
				if _, err := fmt.Sscan(e.Name(), &tid); err != nil {
					t.Fatal(err)
				}
				if nice, err := niceOf(tid); err != unix.ESRCH && nice != x.want { // it may have ended
					t.Errorf("started with %d, %s: thread %d of process %d has %d, want %d", x.nice, x.arg, tid, pid, nice, x.want)
				}
			}
			if group, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", pid)); err == nil && x.nice == 0 && !strings.HasSuffix(string(group), fmt.Sprintf(" nice %d\n", x.want)) {
				t.Errorf("%s: process %d is in the group %q, want %d", x.arg, pid, group, x.want)
			}
		}
	}
}

// niceOf is the nice value of a thread.
func niceOf(tid int) (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	return 20 - n, err // as the system call has it
}
