package main

import (
	"fmt"
	"strings"
	"testing"
)

// Both processes of a mount are found by name, and by mount point.
func TestProcessNames(t *testing.T) {
	t.Parallel()
	m := newCluster(t, 1).mounts[0]
	for what, pid := range map[string]int{"watcher": m.watcher, "daemon": m.daemon()} {
		if comm := read(t, fmt.Sprintf("/proc/%d/comm", pid)); comm != "dmxfs\n" {
			t.Errorf("the %s is called %q", what, comm)
		}
		args := strings.Split(read(t, fmt.Sprintf("/proc/%d/cmdline", pid)), "\x00")
		if args[0] != "dmxfs" || args[2] != m.dir {
			t.Errorf("the arguments of the %s are %q", what, args)
		}
	}
}
