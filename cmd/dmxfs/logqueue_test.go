package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The process that watches a daemon is stopped, and the pipe between them full. The
// daemon goes on, and what it logs meanwhile is not lost.
func TestAStoppedWatcher(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	if err := unix.Kill(m.watcher, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(m.watcher, unix.SIGCONT) })
	await(t, "the watcher stands still", func() bool { return standsStill(m.watcher) })
	pipe, err := unix.Open(fmt.Sprintf("/proc/%d/fd/2", m.daemon()), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe)
	for _, n := range []int{1 << 16, 1} { // a large write needs much room
		for err = nil; err == nil; {
			_, err = unix.Write(pipe, bytes.Repeat([]byte("\n"), n))
		}
	}
	if err != unix.EAGAIN {
		t.Fatal(err)
	}
	v := m.rotate(1) // logs
	if out, code := m.sh("echo x > f && cat f"); code != 0 || out != "x\n" {
		t.Errorf("%d %q", code, out)
	}
	if s, err := m.status(); err != nil || !s.Healthy {
		t.Errorf("%+v %v", s, err)
	}
	if err := unix.Kill(m.watcher, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, "the log is whole", func() bool { return strings.Contains(m.log(), v.Fingerprint) })
}
