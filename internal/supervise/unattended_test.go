package supervise

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/process"
)

// watches starts a process that watches the daemon of a state directory. It is ended by end.
func watches(t *testing.T, state string) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), watchesEnv+"="+state)
	says, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil { // which it waits for
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, or was before
	}
	t.Cleanup(end)
	if line, err := bufio.NewReader(says).ReadString('\n'); err != nil {
		t.Fatalf("it says %q, %v", line, err)
	}
	return cmd.Process.Pid, end
}

// Who unmounts, or mounts, while a daemon is dying leaves it to its watcher, which has another
// one go on: the mount is cut off only where nobody watches, or the watcher has had its time.
func TestADyingDaemonIsItsWatchers(t *testing.T) {
	const never = -1
	for _, x := range []struct {
		name    string
		watched bool
		// In the course of it, 1 s after the begin; the daemon ends with end.
		then func(t *testing.T, state string, watcher int, end func())
		cut  time.Duration
	}{
		{"it ends", true, func(_ *testing.T, _ string, _ int, end func()) { end() }, never},
		{"another one has gone on", true, func(t *testing.T, state string, _ int, _ func()) { writeLock(t, state, os.Getpid()) }, never},
		{"its watcher does nothing", true, func(*testing.T, string, int, func()) {}, handsOverTime},
		{"nobody watches", false, func(*testing.T, string, int, func()) {}, unwatchedTime},
		{"its watcher is stopped", true, func(t *testing.T, _ string, watcher int, _ func()) {
			if err := unix.Kill(watcher, unix.SIGSTOP); err != nil {
				t.Error(err)
			}
			for !process.Stopped(watcher) { // no time passes here
			}
		}, time.Second + unwatchedTime},
		{"another process watches in the place of one that was killed", false, func(t *testing.T, state string, _ int, end func()) {
			watches(t, state)
			time.AfterFunc(2*unwatchedTime, end)
		}, never},
	} {
		t.Run(x.name, func(t *testing.T) {
			state, daemon := t.TempDir(), headless(t)
			end := func() {
				_ = daemon.Process.Kill()
				_ = daemon.Wait() // it was killed, or was before
			}
			t.Cleanup(end)
			writeLock(t, state, daemon.Process.Pid)
			watcher := 0
			if x.watched {
				watcher, _ = watches(t, state)
			}
			synctest.Test(t, func(t *testing.T) {
				began, cut := time.Now(), time.Duration(never)
				time.AfterFunc(time.Second, func() { x.then(t, state, watcher, end) })
				err := endDyingBy(t.Context(), state, "", func(string) error {
					cut = time.Since(began).Round(time.Second) // it looks every 10 ms
					end()
					return nil
				})
				if err != nil || cut != x.cut {
					t.Errorf("%v; the mount is cut off after %v, want %v (-1ns: never)", err, cut, x.cut)
				}
			})
		})
	}
}

// Who waits for a watcher can be told not to.
func TestWhoWaitsForAWatcherIsInterrupted(t *testing.T) {
	state, daemon := t.TempDir(), headless(t)
	defer func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait() // it was killed
	}()
	writeLock(t, state, daemon.Process.Pid)
	watches(t, state)
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := endDyingBy(ctx, state, "", func(string) error { t.Error("the mount is cut off"); return nil }); err != why {
		t.Error(err)
	}
}

func writeLock(t *testing.T, state string, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(state, "lock"), fmt.Appendln(nil, pid), 0o600); err != nil {
		t.Error(err)
	}
}
