package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// usage is what a daemon keeps.
type usage struct {
	fds, paths, goroutines, watcherFDs int   // the first two: see countFDs
	memory                             int64 // bytes
}

// measure looks at the daemons when nothing is going on.
func (c *testCluster) measure() []usage {
	c.t.Helper()
	var all []usage
	for _, m := range c.mounts {
		await(c.t, "nothing is held or kept any more", func() bool {
			s, err := m.status()
			return err == nil && s.Held == 0 && s.Waiting == 0
		})
		s, err := m.status()
		if err != nil {
			c.t.Fatal(err)
		}
		if s.Takeover != nil {
			m.ready() // the watcher has descriptors for it
		}
		u := usage{goroutines: s.Goroutines, memory: s.MemoryBytes}
		u.fds, u.paths = countFDs(c.t, s.PID)
		watcher, paths := countFDs(c.t, m.watcher)
		u.watcherFDs = watcher + paths
		all = append(all, u)
	}
	return all
}

// countFDs counts the open files of a process, and apart from them those that only stand
// for a file (O_PATH), as for each that the kernel remembers. It leaves out those of /proc,
// names of programs, of which some hundreds are kept before they are looked at; and the
// tables of the journal, which are more after many records and restarts, and are merged
// when there are many.
func countFDs(t testing.TB, pid int) (fds, paths int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range list {
		to, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err != nil || strings.HasPrefix(to, "/proc/") || strings.Contains(to, "/journal/db/") {
			continue
		}
		info, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "fdinfo", fd.Name()))
		if err != nil {
			continue // it has been closed
		}
		var pos, flags int
		if _, err := fmt.Sscanf(string(info), "pos: %d\nflags: %o", &pos, &flags); err != nil {
			t.Fatalf("%q: %v", info, err)
		}
		if flags&unix.O_PATH != 0 {
			paths++
		} else {
			fds++
		}
	}
	return fds, paths
}

// compare reports leaks. The kernel may remember so many files more than before.
func (c *testCluster) compare(before, after []usage, files int) {
	c.t.Helper()
	for i := range after {
		b, a := before[i], after[i]
		c.t.Logf("%s: %+v, before %+v", c.mounts[i].dir, a, b)
		if a.fds > b.fds+10 || a.paths > b.paths+files+30 || a.goroutines > b.goroutines+60 || a.watcherFDs > b.watcherFDs+5 || a.memory > b.memory+200<<20 {
			c.t.Errorf("%s keeps %+v, before it was %+v; there are %d files", c.mounts[i].dir, a, b, files)
		}
	}
}
