package process

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Who has started a process with a nice value has decided; but one that goes on for another may
// have that of a takeover.
func TestMayPrefer(t *testing.T) {
	for _, x := range []struct {
		nice         int
		may, follows bool
	}{{0, true, true}, {3, false, false}, {preferred, false, true}} {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with this
			err := unix.Setpriority(unix.PRIO_PROCESS, 0, x.nice)
			if err == nil && (MayPrefer(false) != x.may || MayPrefer(true) != x.follows) {
				t.Errorf("with nice value %d: %v, and %v for one that goes on; want %v and %v", x.nice, MayPrefer(false), MayPrefer(true), x.may, x.follows)
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Skip("not allowed here:", err)
		}
	}
}

// All threads of a process are preferred, and none afterwards; nor is its session, and one that
// is not preferred is left as it is.
func TestPrefer(t *testing.T) {
	cmd := exec.Command("sleep", "100")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	pid := cmd.Process.Pid
	has := func(when string, want int, group string) {
		t.Helper()
		if n, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err != nil || 20-n != want {
			t.Errorf("%s: nice value %d (%v), want %d", when, 20-n, err, want)
		}
		b, err := os.ReadFile(groupOf(pid))
		if err == nil && !strings.HasSuffix(string(b), group+"\n") {
			t.Errorf("%s: the session is %q, want %s", when, b, group)
		}
	}
	if err := Prefer(true, pid); err != nil {
		t.Skip("not allowed here:", err)
	}
	if err := PreferSession(true, pid); err != nil {
		t.Fatal(err)
	}
	has("preferred", preferred, "nice -10")
	if err := Prefer(false, pid); err != nil {
		t.Error(err)
	}
	if err := PreferSession(false, pid); err != nil {
		t.Error(err)
	}
	has("not any more", 0, "nice 0")
	if err := os.WriteFile(groupOf(pid), []byte("5"), 0); err == nil {
		if err := PreferSession(false, pid); err != nil {
			t.Error(err)
		}
		has("with what somebody has given its session", 0, "nice 5")
	}
	if err := Prefer(true, 1<<30); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
	if err := PreferSession(true, 1<<30); err != nil {
		t.Errorf("the session of a process that has ended: %v", err)
	}
}
