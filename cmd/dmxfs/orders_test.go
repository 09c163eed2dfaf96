package main

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Orders to a daemon that is stopped end, by the clock and by Ctrl-C, and are
// not carried out when it goes on.
func TestOrdersThatNobodyWaitsForAnyMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	m.signal(unix.SIGSTOP)
	if _, err := c.try("unmount", "--timeout=3s", m.dir); err == nil || !strings.Contains(err.Error(), "no answer for 3s (--timeout)") {
		t.Errorf("unmount of a stopped daemon: %v", err)
	}
	cmd := c.cmd("unmount", m.dir)
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "it has asked", func() bool { return waitsForAnswer(cmd.Process.Pid) })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted unmount succeeded")
	}
	m.signal(unix.SIGCONT)
	// The second one may have been interrupted before its order was written.
	await(t, "the daemon refuses what it was told", func() bool {
		return strings.Contains(m.log(), "an order is not carried out")
	})
	if !m.mounted() {
		t.Error("it has unmounted")
	}
	if out, code := m.sh("flock -n f true"); code != 0 {
		t.Errorf("the mount: %d %s", code, out)
	}
}

// Every command ends when its time is over, and says what it has waited for, if the
// daemon is stopped; and at Ctrl-C, also while it asks a person.
func TestAllCommandsEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	id := m.peers().Self
	hold := m.helper("hold", "flock", "f")
	m.held("f", 1)
	for _, args := range [][]string{{"locks", "break", "f", m.dir, "--reason", "x"}} {
		cmd := c.cmd(args...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		asked := bufio.NewReader(stderr)
		for said := ""; !strings.HasSuffix(said, "[y/N]"); {
			b, err := asked.ReadByte()
			if err != nil {
				t.Fatalf("%v: %q %v", args, said, err)
			}
			said += string(b)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(asked)
		if err := cmd.Wait(); err == nil || !strings.Contains(string(rest), "nothing was done") {
			t.Errorf("%v, interrupted: %v %s", args, err, rest)
		}
	}
	m.signal(unix.SIGSTOP)
	rules := c.dir + "/rules.toml"
	write(t, rules, "")
	for _, args := range [][]string{
		{"status"}, {"peers"}, {"locks"}, {"journal"}, {"journal", "--follow"}, {"policy", "show"}, {"policy", "check", "f"}, {"policy", "set", rules},
		{"peers", "remove", id, "--yes", "--reason", "x"}, {"peers", "revoke", id, "--yes", "--reason", "x"},
		{"peers", "forget", id, "--yes", "--reason", "x"},
		{"locks", "break", "f", "--yes", "--reason", "x"}, {"secret", "rotate"}, {"secret", "show"}, {"unmount"},
	} {
		_, err := c.try(append(args, m.dir, "--timeout=300ms")...)
		if err == nil || !strings.Contains(err.Error(), "no answer for 300ms (--timeout): is the daemon stopped") {
			t.Errorf("%v: %v", args, err)
		}
	}
	m.signal(unix.SIGCONT)
	// It may have been stopped for longer than its tenure lasts.
	await(t, "it is healthy again", func() bool {
		s, err := m.status()
		return err == nil && s.Healthy
	})
	if s, err := m.status(); err != nil || s.Held != 1 {
		t.Errorf("%+v %v", s, err)
	}
	if got := m.secret(); got != strings.TrimSpace(read(t, c.src+"/.dmxfs/secret")) {
		t.Error("the secret was changed for nobody")
	}
	hold.signal(unix.SIGKILL)
}

// waitsForAnswer reports whether a process has a socket open, beside the
// standard files: it is connected, and has nothing else to do.
func waitsForAnswer(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	list, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range list {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			return true
		}
	}
	return false
}
