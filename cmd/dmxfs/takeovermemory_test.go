package main

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

// uses is what a process has of what grows if it is not given up: mappings of memory that is
// left to others, in bytes, and descriptors, by what they are of.
func uses(t *testing.T, pid int) map[string]int {
	t.Helper()
	u := map[string]int{}
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/maps", pid))) {
		if _, name, ok := strings.Cut(line, "/memfd:dmxfs-"); ok {
			var from, to int
			if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
				t.Fatal(err)
			}
			u["mapped bytes of "+strings.Fields(name)[0]] += to - from
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		to, err := os.Readlink(dir + "/" + f.Name())
		switch {
		case err != nil:
			continue
		case strings.Contains(to, "/journal"): // each daemon begins a part of it
			continue
		case strings.HasPrefix(to, "socket:"): // to other hosts, and of who asks for status
			continue
		case strings.HasPrefix(to, "pipe:"):
			to = "pipe"
		case strings.HasPrefix(to, "/proc/"):
			to = "/proc"
		case strings.Contains(to, "/src/"):
			to = "files"
		}
		u["descriptors of "+to]++
	}
	return u
}

// Ten takeovers in a row leave the last daemon with what the first one had: no memory of
// those before is mapped, and no descriptor is open twice.
func TestTakeoversLeaveNothingOpen(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	m.converse("hoard").want("ok", "files 300")
	m.mayTakeOver()
	var first, now map[string]int
	defer func() {
		if t.Failed() {
			t.Logf("after the first one: %v\nnow: %v", first, now)
		}
	}()
	for i := range long.Or(3, 10) {
		m.livesOn()
		m.killed(unix.SIGKILL)
		m.nothingLost(i + 1)
		await(t, "there is one keeper", func() bool { return m.keepers() == 1 })
		if first == nil {
			first = uses(t, m.daemon())
		}
		await(t, "it has what the first one had", func() bool { // and nothing is just looked at
			now = uses(t, m.daemon())
			return maps.Equal(now, first)
		})
	}
	for _, what := range []string{"mount", "requests", "locks", "claims"} {
		if n := first["descriptors of /memfd:dmxfs-"+what+" (deleted)"]; n != 1 {
			t.Errorf("%d descriptors of %s", n, what)
		}
	}
}
