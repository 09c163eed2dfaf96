package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inHugePages waits until the daemon's program is in huge pages of memory.
func (m *testMount) inHugePages() {
	m.c.t.Helper()
	await(m.c.t, "the daemon's program is in huge pages", func() bool {
		name := fmt.Sprintf("/proc/%d/smaps_rollup", m.daemon())
		_, rest, _ := strings.Cut(read(m.c.t, name), "AnonHugePages:")
		var kB int
		if _, err := fmt.Sscan(rest, &kB); err != nil {
			m.c.t.Fatal(err)
		}
		return kB >= 8<<10
	})
}

// A daemon moves its own code, and is killed then. The next one goes on; it would do the same
// after a minute, and who follows it by an upgrade does at once.
func TestDaemonMovesItsCode(t *testing.T) {
	t.Parallel()
	if b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil || strings.Contains(string(b), "[never]") {
		t.Skipf("the kernel has no huge pages: %s (%v)", b, err)
	}
	m := newCluster(t, 1, "--log-level", "debug").mounts[0]
	held, err := os.Create(filepath.Join(m.dir, "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := lockCall("flock", int(held.Fd()), true); err != nil {
		t.Fatal(err)
	}
	m.inHugePages()
	m.blockedTry(t, "held")
	m.killed(unix.SIGKILL)
	m.blockedTry(t, "held")
	m.upgraded()
	m.inHugePages()
	m.blockedTry(t, "held")
	m.nothingLost(1)
}
