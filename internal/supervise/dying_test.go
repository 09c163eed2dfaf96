package supervise

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
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/process"
)

// A process whose first thread has ended, and no other one, is told from those
// that run and those that have ended.
func TestDying(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), headlessEnv+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	await(t, "its first thread has ended", func() bool { return stateOf(pid) == 'Z' })
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
	if err := os.WriteFile(filepath.Join(state, "lock"), []byte(fmt.Sprintln(pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "upgrading"), []byte(fmt.Sprintln(boottime.Milliseconds()+300)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := endDyingBy(t.Context(), state, t.TempDir(), func(string) error {
		if nodestate.Upgrading(state) {
			t.Error("it is cut off while it executes another program")
		}
		return cmd.Process.Kill()
	}); err != nil {
		t.Error(err)
	}
	await(t, "all its threads have ended", func() bool { return !process.Dying(pid) })
	if stateOf(pid) != 'Z' {
		t.Error("it is not a plain zombie")
	}
	if how, there := process.EndOf(pid); !there || !how.Signaled() || how.Signal() != unix.SIGKILL {
		t.Errorf("it is said to have ended by %#x, it was killed", how)
	}
	_ = cmd.Wait()
	if _, there := process.EndOf(pid); there || process.Dying(pid) {
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

// stateOf is the state of a process, such as 'Z'; 0 if there is none.
func stateOf(pid int) byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name before it has no bracket
	return rest[0]
}

// await waits for a state of a process, which the kernel tells only who asks.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !is(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
