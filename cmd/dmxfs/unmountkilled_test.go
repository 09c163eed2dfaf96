package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// connected reports whether a process has a connection to a socket with a path, accepted or not.
func connected(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	all, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
	if err != nil {
		return false
	}
	for _, f := range files {
		to, _ := os.Readlink(dir + "/" + f.Name())
		ino, ok := strings.CutPrefix(to, "socket:[")
		if !ok {
			continue
		}
		for line := range strings.Lines(string(all)) {
			// Num RefCount Protocol Flags Type St Inode
			if w := strings.Fields(line); len(w) >= 7 && w[6]+"]" == ino && w[5] == "03" {
				return true
			}
		}
	}
	return false
}

// Who unmounts while the daemon is killed, which has not answered yet, gets what it wants: from
// the one that goes on, or without one.
func TestUnmountWhileTheDaemonIsKilled(t *testing.T) {
	t.Parallel()
	for _, takeover := range []string{"--takeover", "--takeover=false"} {
		t.Run(takeover, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1, takeover)
			m := c.mounts[0]
			if takeover == "--takeover" {
				m.mayTakeOver()
			}
			m.signal(unix.SIGSTOP)
			p := &proc{t: t, cmd: c.cmd("unmount", m.dir), done: make(chan struct{})}
			p.runIn("/")
			await(t, "the daemon has the order", func() bool { return connected(p.cmd.Process.Pid) })
			m.signal(unix.SIGKILL)
			if out, code := p.wait(); code != 0 {
				t.Errorf("unmount ends with %d: %s", code, out)
			}
			if m.mounted() {
				t.Error("it is mounted still")
			}
		})
	}
}

// A mount that is taken away while it has no daemon stays away, though the one that was to go on
// could not.
func TestTakenAwayDuringATakeover(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	m.mayTakeOver()
	defer m.cutsOff()()
	next, daemon := m.ready(), m.daemon()
	if err := unix.Kill(next, unix.SIGSTOP); err != nil { // it goes on when the mount is gone
		t.Fatal(err)
	}
	m.signal(unix.SIGKILL)
	if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(next, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !m.ended([]int{m.watcher, daemon, next}) {
		t.Errorf("the mount was taken away, and is watched still")
	}
	if m.mounted() {
		t.Error("it was mounted anew")
	}
	if log := m.log(); strings.Contains(log, "works again") {
		t.Error("another daemon has served it")
	}
}
