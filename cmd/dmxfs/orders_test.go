package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Orders to a daemon that is stopped end, by the clock and by Ctrl-C, and are
// not carried out when it goes on.
func TestOrdersThatNobodyWaitsForAnyMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	m.signal(unix.SIGSTOP)
	if _, err := c.try("unmount", "--timeout=3s", m.dir); err == nil || !strings.Contains(err.Error(), "no answer for 3s (--timeout)") {
		t.Errorf("unmount of a stopped daemon: %v", err)
	}
	cmd := c.cmd("unmount", m.dir)
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "it has asked", func() bool { return waitsForAnswer(cmd.Process.Pid) })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted unmount succeeded")
	}
	m.signal(unix.SIGCONT)
	// The second one may have been interrupted before its order was written.
	await(t, "the daemon refuses what it was told", func() bool {
		return strings.Contains(read(t, m.state+"/dmxfs.log"), "an order is not carried out")
	})
	if !m.mounted() {
		t.Error("it has unmounted")
	}
	if out, code := m.sh("flock -n f true"); code != 0 {
		t.Errorf("the mount: %d %s", code, out)
	}
}

// waitsForAnswer reports whether a process has a socket open, beside the
// standard files: it is connected, and has nothing else to do.
func waitsForAnswer(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	list, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range list {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			return true
		}
	}
	return false
}
