package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/supervise"
)

// A mount that is cut off fails at once for all who wait for it, and stays in
// its place.
func TestAbortMount(t *testing.T) {
	t.Parallel()
	t.Run("takeover", func(t *testing.T) { abortMount(t, "--takeover") })
	t.Run("anew", func(t *testing.T) { abortMount(t, "--takeover=false") })
}

func abortMount(t *testing.T, args ...string) {
	c := newCluster(t, 1, args...)
	m := c.mounts[0]
	m.signal(unix.SIGSTOP)
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

// Of a daemon that was killed a thread may be left that waits for its own mount. Who mounts
// there again ends it, if its watcher was killed, too, or is stopped.
func TestMountWhereADaemonCannotEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	daemon := m.daemon()
	m.signal(unix.SIGSTOP)
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
	if err := unix.Kill(m.watcher, unix.SIGSTOP); err != nil { // one that runs would see to it
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(m.watcher, unix.SIGCONT) }) // it goes on already
	await(t, "the watcher stands still", func() bool { return standsStill(m.watcher) })
	if err := supervise.NotHanging(t.Context(), config.Config{Source: c.src, Mountpoint: m.dir, State: m.state}, ask.AnswerTime); err != nil {
		t.Error(err)
	}
	if process.Dying(cmd.Process.Pid) || !mountpoint.IsDead(m.dir) {
		t.Errorf("still dying %v, the mount is dead %v", process.Dying(cmd.Process.Pid), mountpoint.IsDead(m.dir))
	}
	if err := unix.Kill(daemon, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(m.watcher, unix.SIGCONT); err != nil {
		t.Error(err)
	}
	await(t, "it is served again", func() bool { s, err := m.status(); return err == nil && s.State == "live" })
}

// The first thread of a process that was killed may be the one that cannot end, as the
// storage hangs: that is no process that runs.
func TestFirstThreadThatCannotEnd(t *testing.T) {
	t.Parallel()
	needMounts(t)
	c := emptyCluster(t)
	c.src = filepath.Join(c.dir, "src")
	makeDirs(t, c.dir, "backing")
	s := newHangingStorage(t, filepath.Join(c.dir, "backing"), c.src)
	m := c.add(onStorage...)
	m.mount()
	s.hang(true)
	var p *proc
	pid := 0
	for tries := 0; ; tries++ {
		p = &proc{t: t, cmd: exec.Command("stat", m.path("no-such-name")), done: make(chan struct{})}
		p.runIn("/")
		pid = p.cmd.Process.Pid
		await(t, "the storage is asked", func() bool {
			b, err := os.ReadFile("/sys/fs/fuse/connections/" + connection(t, c.src) + "/waiting")
			return err != nil || strings.TrimSpace(string(b)) != "0"
		})
		if process.Dying(pid) {
			t.Error("who waits for storage is taken for dying")
		}
		p.signal(unix.SIGKILL)
		await(t, "it is dying", func() bool { return process.Dying(pid) || p.ended() })
		if !p.ended() {
			break
		}
		if tries == 100 { // it was killed before it had come to ask, and the daemon was asked by others
			t.Fatal("each has ended: this test shows nothing")
		}
	}
	s.hang(false)
	p.ends("the program, when the storage answers")
	if process.Dying(pid) {
		t.Error("a process that is no more is taken for dying")
	}
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
