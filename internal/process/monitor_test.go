package process

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The thread that is taken for the monitor of the runtime is the one that sleeps for some
// microseconds at a time while there is work, and it is the only one.
func TestMonitor(t *testing.T) {
	tid, err := monitorOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if tid == os.Getpid() {
		t.Fatal("it is the first thread")
	}
	sleeps := map[string]int{}
	threads := func() {
		all, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			// It has ended, or this is not allowed.
			if b, err := os.ReadFile("/proc/self/task/" + e.Name() + "/syscall"); err == nil {
				if call, _, _ := strings.Cut(string(b), " "); call == fmt.Sprint(unix.SYS_NANOSLEEP) {
					sleeps[e.Name()]++
				}
			}
		}
	}
	if _, err := os.ReadFile("/proc/self/syscall"); err != nil {
		t.Skip(err)
	}
	want := fmt.Sprint(tid)
	for began := time.Now(); sleeps[want] < 20; runtime.Gosched() {
		if threads(); time.Since(began) > 20*time.Second {
			t.Fatalf("thread %s is seldom seen in nanosleep(2): %v", want, sleeps)
		}
	}
	for other, n := range sleeps {
		if other != want && n >= sleeps[want] { // to steal work it takes 3 µs
			t.Errorf("thread %s sleeps like a monitor, too: %v, and %s is taken for it", other, sleeps, want)
		}
	}
}

// The monitor of another process is given the slack, and its other threads are not.
func TestCalmMonitor(t *testing.T) {
	slack := func(tid any) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%v/timerslack_ns", tid))
		if err != nil {
			t.Skip(err)
		}
		return strings.TrimSpace(string(b))
	}
	pid := os.Getpid()
	tid, err := monitorOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	before, first := slack(tid), slack(pid)
	if err := CalmMonitor(pid); err != nil {
		t.Skip("not allowed here:", err)
	}
	defer os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid), []byte(before), 0)
	if got := slack(tid); got != fmt.Sprint(monitorSlack) {
		t.Errorf("the monitor has a slack of %s ns", got)
	}
	if got := slack(pid); got != first {
		t.Errorf("the first thread has a slack of %s ns, and had %s", got, first)
	}
	if err := CalmMonitor(1 << 30); err == nil {
		t.Error("no error for a process that does not exist")
	}
}
