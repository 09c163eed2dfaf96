package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/trouble"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Who cuts off a mount that is in use (umount -f) gets another one: what is dead
// and in its place for ever helps nobody. One that goes as well stays away.
func TestAMountThatIsCutOffIsServedAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	f, err := os.Create(filepath.Join(m.dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	old := m.daemon()
	if err := unix.Unmount(m.dir, unix.MNT_FORCE); err != unix.EBUSY {
		t.Fatalf("umount -f of a mount that is in use: %v", err)
	}
	m.awaitNew(old)
	if out, code := m.sh("flock -n f true"); code != 0 {
		t.Errorf("the new mount: %d %s", code, out)
	}

	pids := []int{m.daemon(), m.watcher}
	if f, err = os.Open(filepath.Join(m.dir, "f")); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Unmount(m.dir, unix.MNT_FORCE); err != unix.EBUSY {
		t.Fatalf("umount -f of a mount that is in use: %v", err)
	}
	if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if !m.ended(pids) || m.mounted() {
		t.Error("it was cut off and taken away, and is back")
	}
}

// The foreground's watcher goes on when nobody reads its log, and when its
// terminal is gone, and starts a daemon that dies anew. What it panics with is not
// the status of wrong options, upon which systemd would give up.
func TestAWatcherWhoseLogNobodyReads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	m := c.add()
	m.crashes = 1
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.cmd("mount", "--foreground", "--state", m.state, "--listen", "/ip4/127.0.0.1/tcp/0", c.src, m.dir)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	m.watcher = cmd.Process.Pid
	await(t, "it is mounted", func() bool { s, err := m.status(); return err == nil && s.Healthy })
	await(t, "the watcher can be found", func() bool { pid, err := watcherOf(m.state); return err == nil && pid == m.watcher })
	r.Close()
	if err := cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	old := m.daemon()
	m.signal(unix.SIGHUP)
	m.signal(unix.SIGKILL)
	m.awaitNew(old)
	if pid := parent(m.daemon()); pid != cmd.Process.Pid {
		t.Errorf("the new daemon is a child of %d, want of the watcher %d", pid, cmd.Process.Pid)
	}
	if err := cmd.Process.Signal(unix.SIGABRT); err != nil { // which ends a program in Go like a panic
		t.Fatal(err)
	}
	err = cmd.Wait()
	if s, ok := cmd.ProcessState.Sys().(interface{ Signaled() bool }); !ok || !s.Signaled() {
		t.Errorf("a watcher that crashes ends with %v", err)
	}
	await(t, "there is another watcher", func() bool {
		pid, err := watcherOf(m.state)
		m.watcher = pid
		return err == nil && pid != 0 && pid != cmd.Process.Pid
	})
}

// What may pass is tried again: members that cannot be reached yet, storage that
// fails, also if the watcher was started by the daemon.
func TestWhatMayPassIsNotFinal(t *testing.T) {
	t.Parallel()
	for code, want := range map[member.EndCode]int{
		member.EndLost: exitcode.Failure, member.EndUnreachable: exitcode.Failure, member.EndPartial: exitcode.Failure,
		member.EndRevoked: exitcode.Refused, member.EndTwin: exitcode.Refused, member.EndRestored: exitcode.Refused,
	} {
		if got := endCode(&cluster.Ended{End: member.End{Code: code}}); got != want {
			t.Errorf("%v: %d, want %d", code, got, want)
		}
	}
	for _, x := range []struct {
		err   error
		final bool
	}{{unix.EROFS, false}, {errors.New("refused"), true}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		(&minder{lastWord: w}).ends(exitcode.With(exitcode.Refused, x.err))
		w.Close()
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&watcher{charge: &charge{process: self, lastWord: r}}).adopt(t.Context())
		if err == nil || trouble.Final(err) != x.final {
			t.Errorf("%v becomes %v, final: %v", x.err, err, trouble.Final(err))
		}
	}
}

// A daemon that ends while a watcher is being started for it tells that one, too.
func TestTheEndIsToldToAWatcherThatBegins(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m := &minder{}
	m.ends(nil)
	m.setLastWord(w, 0)
	m.setLastWord(w, 1) // once
	w.Close()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&watcher{charge: &charge{process: self, lastWord: r}}).adopt(t.Context()); err != nil {
		t.Errorf("a daemon that has ended in order: %v", err)
	}
}

// A shared directory that fails says nothing of the options.
func TestStorageThatFailsIsNoWrongOption(t *testing.T) {
	t.Parallel()
	if err := statedir.Make(t.TempDir(), -1); err == nil || exitcode.Of(err) != exitcode.Failure {
		t.Errorf("%v: %d", err, exitcode.Of(err))
	}
}

// A lock that no process has, but an open file, names nobody who could be ended:
// -1 would be all processes.
func TestALockWithoutAProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, watcherFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	if pid, err := watcherOf(dir); pid != 0 || err != nil {
		t.Errorf("%d, %v", pid, err)
	}
}
