package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// usage is what a daemon keeps.
type usage struct {
	fds, goroutines, watcherFDs int
	memory                      int64 // bytes
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
		all = append(all, usage{countFDs(c.t, s.PID), s.Goroutines, countFDs(c.t, m.watcher), s.MemoryBytes})
	}
	return all
}

// countFDs counts the open files of a process, without those of /proc, names of
// programs, of which some hundreds are kept before they are looked at; and
// without the tables of the journal, which are more after many records and
// restarts, and are merged when there are many.
func countFDs(t testing.TB, pid int) int {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range list {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && !strings.HasPrefix(to, "/proc/") && !strings.Contains(to, "/journal/db/") {
			n++
		}
	}
	return n
}

// compare reports leaks. The kernel may remember so many files more than before.
func (c *testCluster) compare(before, after []usage, files int) {
	c.t.Helper()
	for i := range after {
		b, a := before[i], after[i]
		b.fds += files
		c.t.Logf("%s: %+v, before %+v", c.mounts[i].dir, a, b)
		if a.fds > b.fds+30 || a.goroutines > b.goroutines+60 || a.watcherFDs > b.watcherFDs+5 || a.memory > b.memory+200<<20 {
			c.t.Errorf("%s keeps %+v, before it was %+v", c.mounts[i].dir, a, b)
		}
	}
}
