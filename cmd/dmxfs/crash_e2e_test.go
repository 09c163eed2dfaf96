package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/crash"
	"github.com/dmxfs/dmxfs/internal/version"
)

// A daemon, or a watcher, that the Go runtime ends leaves a report, of which its
// successor and `dmxfs support` tell.
func TestCrashedDaemonLeavesAReport(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	m.crashes = 2
	old := m.daemon()
	m.signal(unix.SIGABRT) // which ends a program in Go like an error that it cannot recover from
	m.awaitNew(old)

	reports, err := crash.Reports(m.state)
	if err != nil || len(reports) != 1 {
		t.Fatalf("%v, %v", reports, err)
	}
	for what, path := range map[string]string{"the report": reports[0], "the log": filepath.Join(m.state, "dmxfs.log")} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{filepath.Base(reports[0])}
		if what == "the report" {
			want = []string{"process: daemon\n", "version: " + version.String() + "\n", "mount: " + m.dir + "\n", "goroutine "}
		}
		for _, s := range want {
			if !strings.Contains(string(b), s) {
				t.Errorf("%s has no %q:\n%s", what, s, b)
			}
		}
	}

	// So does its watcher.
	m.endWatcher(unix.SIGABRT)
	reports, err = crash.Reports(m.state)
	if err != nil || len(reports) != 2 {
		t.Fatalf("%v, %v", reports, err)
	}
	if b := read(t, reports[1]); !strings.Contains(b, "process: watcher\n") || !strings.Contains(b, "goroutine ") {
		t.Errorf("the report on the watcher:\n%s", b)
	}
	if log := m.log(); !strings.Contains(log, filepath.Base(reports[1])) {
		t.Errorf("the log does not tell of %s:\n%s", reports[1], log)
	}
	b, err := supportCrashes(m.state)
	if err != nil || !strings.Contains(string(b), filepath.Base(reports[0])) || !strings.Contains(string(b), filepath.Base(reports[1])) {
		t.Errorf("for support: %v\n%s", err, b)
	}
}
