package main

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/journalview"
)

func TestJournalFollows(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	follow := c.cmd("journal", "--follow", "--json", "--event", "granted", "--path", "f*", m.dir)
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = follow.Process.Kill()
		_ = follow.Wait()
	})
	lines := json.NewDecoder(out)
	for _, name := range []string{"f1", "f2"} {
		if out, code := m.sh("flock other true && flock " + name + " true"); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		for {
			var r journalview.Row
			if err := lines.Decode(&r); err != nil {
				t.Fatal(err)
			}
			if r.Event != "granted" || !strings.HasPrefix(r.Path, "f") {
				t.Fatalf("a record that was not asked for: %+v", r)
			}
			if r.Path == name && r.Class == "flock" {
				break
			}
		}
	}
}

// As a table, too, each record is there when it is written.
func TestJournalFollowsAsATable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	if out, code := m.sh("flock f0 true"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	follow := c.cmd("journal", "--follow", "--last", "1", m.dir)
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	// No line: it ends, and the test with it.
	late := time.AfterFunc(time.Minute, func() { _ = follow.Process.Kill() })
	t.Cleanup(func() {
		late.Stop()
		_ = follow.Process.Kill()
		_ = follow.Wait()
	})
	lines := bufio.NewScanner(out)
	next := func(want string) {
		for {
			if !lines.Scan() {
				t.Fatalf("no line with %q comes", want)
			}
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
	}
	next("f0")
	if out, code := m.sh("flock f1 true"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	next("f1")
}
