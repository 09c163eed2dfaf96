package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that replaces a file by rename(2) under a lock, on a host that is
// stopped meanwhile, does not replace what the next holder has put there. The
// lock is that of a shell, which flock(1) has taken for it, and mv(1) is its
// child.
func TestRenameUnderALockThatWasLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	gate, says := filepath.Join(c.dir, "gate"), filepath.Join(c.dir, "says")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, says, "")
	const replace = "exec 9>lock; flock 9; echo %[1]s > data.%[1]s"
	old := a.start(fmt.Sprintf(replace+"; echo ready > %[2]s; read x < %[3]s; mv data.%[1]s data; exit $?", "old", says, gate))
	await(t, "it has the lock", func() bool { return read(t, says) == "ready\n" })
	a.signal(unix.SIGSTOP)
	write(t, gate, "x\n")
	next := b.start(fmt.Sprintf(replace+"; mv data.%[1]s data; echo moved > %[2]s; read x < %[3]s; cat data", "new", says, gate))
	await(t, "the next one has replaced the file", func() bool { return read(t, says) == "moved\n" })
	a.signal(unix.SIGCONT)
	if out, code := old.wait(); code != 1 {
		t.Errorf("mv on the host that was stopped: %d %s", code, out)
	}
	write(t, gate, "x\n")
	if out, code := next.wait(); code != 0 || out != "new\n" {
		t.Errorf("the next holder reads %q (%d)", out, code)
	}
}
