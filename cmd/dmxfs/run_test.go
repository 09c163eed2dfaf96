package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/mountpoint"
)

// startRun starts dmxfs run with args in the mount.
func (m *testMount) startRun(args ...string) *proc {
	m.c.t.Helper()
	p := &proc{t: m.c.t, cmd: m.c.cmd(append([]string{"run"}, args...)...), done: make(chan struct{})}
	p.run(m)
	return p
}

func TestRunKeepsHostsApart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	for _, name := range []string{"/go", "/go2"} {
		if err := unix.Mkfifo(c.src+name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hold := a.startRun("f", "--", "sh", "-c", "echo began; read x <../src/go")
	a.held("f", 1)
	for _, args := range [][]string{{"--wait", "0s"}, {"--wait", "300ms"}, {"--wait=0s", "--shared"}} {
		out, code := b.startRun(append(args, "f", "--", "echo", "ran")...).wait()
		if code != runTimeout || !strings.Contains(out, "the lock of f could not be had: another program holds it") || strings.Contains(out, "ran") {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
	next := b.startRun("f", "--", "echo", "next")
	b.blocked("f", 1)
	write(t, c.src+"/go", "x\n")
	if out, code := hold.wait(); code != 0 || out != "began\n" {
		t.Errorf("the holder: %d %q", code, out)
	}
	if out, code := next.wait(); code != 0 || out != "next\n" {
		t.Errorf("the next: %d %q", code, out)
	}
	// Two readers at once, on two hosts.
	first := a.startRun("--shared", "f", "--", "sh", "-c", "read x <../src/go2")
	a.held("f", 1)
	if out, code := b.startRun("--shared", "--wait=0s", "f", "--", "true").wait(); code != 0 {
		t.Errorf("a second reader: %d %s", code, out)
	}
	write(t, c.src+"/go2", "x\n")
	first.wait()
}

func TestRunPassesOnTheCommandsEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	a := c.mounts[0]
	write(t, a.path("noexec"), "")
	if err := errors.Join(os.Mkdir(a.path("d"), 0o755), unix.Mkfifo(a.path("pipe"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"f", "--", "sh", "-c", "cat; exit 7"}, 7, ""},
		{[]string{"f", "sh", "-c", "exit 0"}, 0, ""},
		{[]string{"f", "--", "sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{[]string{"f", "--", "no-such-command"}, runNotFound, "no-such-command"},
		{[]string{"f", "--", "./noexec"}, runNoExec, "permission denied"},
		{[]string{"d", "--", "true"}, runFailure, "d is no regular file"},
		{[]string{"pipe", "--", "true"}, runFailure, "pipe is no regular file"},
		{[]string{"missing/f", "--", "true"}, runFailure, "no such file"},
		{[]string{c.src + "/f", "--", "true"}, runFailure, "is not below a dmxfs mount"},
		{[]string{"f"}, runFailure, "dmxfs run PATH -- COMMAND"},
		{[]string{"f", "--"}, runFailure, "dmxfs run PATH -- COMMAND"},
		{[]string{"--wait", "long", "f", "--", "true"}, runFailure, `"long" is no time`},
		{[]string{"--shared", "--exclusive", "f", "--", "true"}, runFailure, "shared"},
	} {
		out, code := a.startRun(x.args...).wait()
		if code != x.code || !strings.Contains(out, x.out) || x.out == "" && out != "" {
			t.Errorf("run %v: %d %q, want %d %q", x.args, code, out, x.code, x.out)
		}
	}
	if n := a.count("f", "held"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	// A signal goes to the command; what that leaves behind does not keep the lock.
	p := a.startRun("f", "--", "sh", "-c", "trap 'exit 9' TERM; sleep 1000 >/dev/null 2>&1 & echo $! >pid; wait")
	await(t, "the command runs", func() bool { b, _ := os.ReadFile(c.src + "/pid"); return len(b) > 1 })
	if err := unix.Kill(p.cmd.Process.Pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit code %d", code)
	}
	left, err := strconv.Atoi(strings.TrimSpace(read(t, a.path("pid"))))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(left) {
		t.Error("the program in the background was ended, too")
	}
	if out, code := a.startRun("--wait=0s", "f", "--", "true").wait(); code != 0 {
		t.Errorf("the lock: %d %s", code, out)
	}
	_ = unix.Kill(left, unix.SIGKILL)
	await(t, "it has gone from the mount", func() bool { return !alive(left) })
}

// The token in the environment rises from run to run, over hosts.
func TestRunTellsTheToken(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	last := uint64(0)
	for i := range 6 {
		out, code := c.mounts[i%2].startRun("f", "--", "sh", "-c", "echo $DMXFS_TOKEN").wait()
		token, err := strconv.ParseUint(strings.TrimSpace(out), 10, 64)
		if code != 0 || err != nil || token <= last {
			t.Errorf("run %d: %d, token %q after %d", i, code, out, last)
		}
		last = token
	}
}

// When the lock is lost, the command is ended, with all that it has started,
// also what ignores SIGTERM or has left its parent.
func TestRunEndsTheCommandWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	var side parts
	defer side.Wait()
	for _, how := range []string{"broken", "stopped", "killed"} {
		side.run(t, how, func(t *testing.T) {
			c := newCluster(t, 2, "--no-restart")
			a, b := c.mounts[0], c.mounts[1]
			const command = `sh -c "trap '' TERM; echo \$\$ >>../src/pids; while :; do sleep 1; done" &
				(setsid sleep 1000 & echo $! >>../src/pids)
				echo $$ >>../src/pids; wait`
			p := a.startRun("--kill-after=500ms", "f", "--", "sh", "-c", command)
			var pids []string
			await(t, "the command runs", func() bool {
				all, _ := os.ReadFile(filepath.Join(c.src, "pids"))
				pids = strings.Fields(string(all))
				return len(pids) == 3 && strings.HasSuffix(string(all), "\n")
			})
			switch how {
			case "broken":
				if _, err := c.try("locks", "break", "f", b.dir, "--reason", "a test", "--yes"); err != nil {
					t.Fatal(err)
				}
			case "stopped":
				a.signal(unix.SIGSTOP)
				if out, code := b.startRun("f", "--", "echo", "next").wait(); code != 0 || out != "next\n" {
					t.Errorf("the other host: %d %s", code, out)
				}
				a.signal(unix.SIGCONT)
			case "killed":
				a.signal(unix.SIGKILL)
			}
			p.ends("the end of dmxfs run")
			if out, code := p.wait(); code != runLost || !strings.Contains(out, "the lock of f is lost") {
				t.Errorf("%d %s", code, out)
			}
			for _, pid := range pids {
				if n, err := strconv.Atoi(pid); err != nil || alive(n) {
					t.Errorf("process %s is alive (%v)", pid, err)
				}
			}
			if how == "killed" {
				c.run("unmount", a.dir)
			}
		})
	}
}

// A mount that is dead is no place for a lock.
func TestRunOnADeadMount(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--no-restart")
	a := c.mounts[0]
	pid := a.daemon()
	a.signal(unix.SIGKILL)
	await(t, "the daemon is dead", func() bool { return !alive(pid) && mountpoint.IsDead(a.dir) })
	cmd := c.cmd("run", a.path("f"), "--", "echo", "ran")
	out, err := cmd.CombinedOutput()
	if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != runFailure || !strings.Contains(string(out), "transport endpoint is not connected") {
		t.Errorf("%v %s", err, out)
	}
	c.run("unmount", a.dir)
}
