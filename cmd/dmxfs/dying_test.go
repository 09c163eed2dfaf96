package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/process"
)

// A process whose first thread has ended, and no other one, is told from those
// that run and those that have ended.
func TestDying(t *testing.T) {
	needMounts(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"=headless")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	await(t, "its first thread has ended", func() bool { return procState(pid) == "Z" })
	if !process.Dying(pid) {
		t.Error("it has other threads, and is not taken for dying")
	}
	if process.Dying(os.Getpid()) {
		t.Error("this process is taken for dying")
	}
	// One that executes another program looks like that, too: it is left alone.
	looks := 0
	log := new(bytes.Buffer)
	ended := make(chan struct{})
	helpToEnd(ended, pid, t.TempDir(), func() bool {
		if looks++; looks == 5 {
			close(ended)
		}
		return true
	}, slog.New(slog.NewTextHandler(log, nil)))
	if log.Len() > 0 {
		t.Errorf("a daemon that is replaced is cut off: %s", log.String())
	}
	cut, over := make(chan struct{}), false
	helpToEnd(cut, pid, t.TempDir(), func() bool {
		if log.Len() > 0 && !over {
			close(cut)
			over = true
		}
		return over
	}, slog.New(slog.NewTextHandler(log, nil)))
	state := t.TempDir()
	write(t, filepath.Join(state, "lock"), fmt.Sprintln(pid))
	write(t, filepath.Join(state, nodestate.UpgradingFile), fmt.Sprintln(boottime.Milliseconds()+300))
	if err := endDyingBy(state, t.TempDir(), func(string) error {
		if nodestate.Upgrading(state) {
			t.Error("it is cut off while it executes another program")
		}
		return cmd.Process.Kill()
	}); err != nil {
		t.Error(err)
	}
	await(t, "all its threads have ended", func() bool { return !process.Dying(pid) })
	if procState(pid) != "Z" {
		t.Error("it is not a plain zombie")
	}
	_ = cmd.Wait() // it was killed
	if process.Dying(pid) {
		t.Error("a process that is no more is taken for dying")
	}
}

// A daemon that has not heard that it is to end is asked again.
func TestAskToEnd(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `trap 'trap "exit 5" TERM; echo deaf' TERM; echo ready; while :; do sleep 0.01; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, want := range []string{"ready", "deaf"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it says %q, want %q", lines.Text(), want)
		}
		if want == "ready" {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			ended := make(chan struct{})
			defer close(ended)
			go askToEnd(ctx, ended, cmd.Process)
		}
	}
	for lines.Scan() { // until it has ended
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("it ended with %d", code)
	}
}

// A mount that is cut off fails at once for all who wait for it, and stays in
// its place.
func TestAbortMount(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	m.signal(unix.SIGSTOP)
	await(t, "the daemon stands still", func() bool { return procState(m.daemon()) == "T" })
	p := &proc{t: t, cmd: exec.Command("ls", "-l", m.path("no-such-name")), done: make(chan struct{})}
	p.runIn("/") // not in the mount: this process would wait for the daemon
	await(t, "a program waits for the daemon", func() bool {
		b, err := os.ReadFile("/sys/fs/fuse/connections/" + connection(t, m.dir) + "/waiting")
		return err != nil || strings.TrimSpace(string(b)) != "0"
	})
	if err := mountpoint.Abort(m.dir); err != nil {
		t.Fatal(err)
	}
	if out, code := p.wait(); code == 0 {
		t.Errorf("the program that waited: %d %s", code, out)
	}
	if !m.mounted() || !mountpoint.IsDead(m.dir) {
		t.Errorf("mounted %v, dead %v", m.mounted(), mountpoint.IsDead(m.dir))
	}
	m.signal(unix.SIGKILL)
	await(t, "it is served again", func() bool { s, err := m.status(); return err == nil && s.State == "live" })
	if out, code := m.sh("flock -n f true"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
}

// Of a daemon that was killed together with its watcher a thread may be left that
// waits for its own mount. Who mounts there again ends it.
func TestMountWhereADaemonCannotEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	daemon := m.daemon()
	m.signal(unix.SIGSTOP)
	await(t, "the daemon stands still", func() bool { return procState(daemon) == "T" })
	cmd := exec.Command("/proc/self/exe", m.path("no-such-name"))
	cmd.Env = append(os.Environ(), helperEnv+"=headless")
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, or has ended
	})
	await(t, "its first thread has ended", func() bool { return process.Dying(cmd.Process.Pid) })
	write(t, filepath.Join(m.state, "lock"), fmt.Sprintln(cmd.Process.Pid))
	if err := notHanging(config.Config{Source: c.src, Mountpoint: m.dir, State: m.state}, answerTime); err != nil {
		t.Error(err)
	}
	if process.Dying(cmd.Process.Pid) || !mountpoint.IsDead(m.dir) {
		t.Errorf("still dying %v, the mount is dead %v", process.Dying(cmd.Process.Pid), mountpoint.IsDead(m.dir))
	}
	if err := unix.Kill(daemon, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	await(t, "it is served again", func() bool { s, err := m.status(); return err == nil && s.State == "live" })
}

// connection is the number of a FUSE mount.
func connection(t *testing.T, dir string) string {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == dir {
			_, minor, _ := strings.Cut(f[2], ":")
			return minor
		}
	}
	t.Fatalf("%s is no mount", dir)
	return ""
}
