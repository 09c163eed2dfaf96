package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/journalview"
	"github.com/dmxfs/dmxfs/internal/supervise"
)

// ask is what the commands with --json print, asked for without the process: tests
// look at it hundreds of times. Scripts in testdata and other tests run the commands.
func (m *testMount) ask(path string, v any) error {
	cl := admin.NewClient(m.state)
	cl.Messages = io.Discard
	return cl.Get(context.Background(), path, v)
}

// getJSON runs a command with --json.
func (m *testMount) getJSON(v any, args ...string) error {
	out, err := m.c.try(append(args, "--json", m.dir)...)
	if code, ok := errors.AsType[*exec.ExitError](err); ok && code.ExitCode() == exitcode.Sick {
		err = nil // it says so itself
	}
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), v)
}

func (m *testMount) status() (s admin.Status, err error) {
	if err = m.ask("/status", &s); exitcode.Of(err) == exitcode.NoMount && supervise.AskWatcher(m.state, &s) == nil {
		err = nil // it waits for a daemon
	}
	return s, err
}

func (m *testMount) peers() admin.Peers {
	m.c.t.Helper()
	var p admin.Peers
	if err := m.ask("/peers", &p); err != nil {
		m.c.t.Fatal(err)
	}
	return p
}

func (m *testMount) locks() []admin.Lock {
	m.c.t.Helper()
	var a admin.Locks
	if err := m.ask("/locks", &a); err != nil {
		m.c.t.Fatal(err)
	}
	return a.Locks
}

// journal is what the journal says, a line a record.
func (m *testMount) journal(args ...string) []journalview.Row {
	m.c.t.Helper()
	out := m.c.run(append(append([]string{"journal", "--json"}, args...), m.dir)...)
	var rows []journalview.Row
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var r journalview.Row
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return rows
		} else if err != nil {
			m.c.t.Fatal(err)
		}
		rows = append(rows, r)
	}
}

// awaitMembers waits until all mounts are in one view of n.
func (c *testCluster) awaitMembers(n int) {
	c.t.Helper()
	await(c.t, fmt.Sprintf("all mounts see %d members", n), func() bool {
		epoch := uint64(0)
		for _, m := range c.mounts {
			if !m.mounted() {
				continue
			}
			s, err := m.status()
			if err != nil || s.Members != n || s.State != "live" || epoch != 0 && s.Epoch != epoch {
				return false
			}
			epoch = s.Epoch
		}
		return true
	})
}

// What the commands print is what ask gets.
func TestCommandsPrintWhatTheDaemonTells(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	a := c.mounts[0]
	hold := a.helper("hold", "flock", "f")
	a.held("f", 1)
	told, err := a.status()
	if err != nil {
		t.Fatal(err)
	}
	var st admin.Status
	if err := a.getJSON(&st, "status"); err != nil || st.PID != told.PID || st.Self != told.Self || st.Members != 1 || st.Held != 1 || !st.Healthy {
		t.Errorf("status: %v %+v, want %+v", err, st, told)
	}
	var p admin.Peers
	if err := a.getJSON(&p, "peers"); err != nil || len(p.Members) != 1 || p.Members[0].ID != st.Self || p.Epoch != a.peers().Epoch {
		t.Errorf("peers: %v %+v", err, p)
	}
	var l []admin.Lock
	if err := a.getJSON(&l, "locks"); err != nil || len(l) != 1 || l[0].Path != "f" || l[0].PID != hold.cmd.Process.Pid || l[0].State != "held" {
		t.Errorf("locks: %v %+v", err, l)
	}
}
