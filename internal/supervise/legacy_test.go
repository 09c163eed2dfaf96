package supervise

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/process"
)

// Only a daemon that was killed, or has crashed, and has said what it leaves, is followed by
// one that takes that; and not if those that take it are killed at once.
func TestMayTakeOver(t *testing.T) {
	w := &watcher{log: slog.New(slog.DiscardHandler)}
	killed := exitcode.With(exitcode.Failure, &errGone{"signal: killed", true, true})
	if w.mayTakeOver(killed) {
		t.Error("it has left nothing")
	}
	serves := func(generation uint64) { w.bequeathed(estate.Will{Generation: generation, InForce: true}) }
	serves(1)
	for what, err := range map[string]error{
		"that has ended by itself": exitcode.With(exitcode.Refused, &errGone{"exit status 4", false, false}),
		"that said why":            errors.New("no member any more"),
	} {
		if w.mayTakeOver(err) || w.legacy.takes() {
			t.Errorf("a daemon %s is succeeded", what)
		}
	}
	generation := uint64(1)
	for range 10 { // each lives
		w.legacy.inForce = time.Now().Add(-2 * shortLife)
		if !w.mayTakeOver(killed) || !w.legacy.takes() {
			t.Fatal("a daemon that was killed is not succeeded")
		}
		generation++
		serves(generation)
		if w.legacy.takes() {
			t.Fatal("it has taken it already")
		}
	}
	crashed := exitcode.With(exitcode.Failure, &errGone{"exit status 2", true, false})
	for _, x := range []struct {
		err  error
		most int
	}{{killed, maxQuickKilled}, {crashed, maxQuick}} {
		w.legacy.inForce = time.Now().Add(-2 * shortLife)
		if !w.mayTakeOver(x.err) {
			t.Fatal("a daemon that has served for long is not succeeded")
		}
		for i := range x.most + 1 {
			if got, want := w.mayTakeOver(x.err), i < x.most; got != want {
				t.Errorf("after %d with %v soon: %v", i, x.err, got)
			}
			if i%2 == 0 { // whether it came to serve or not
				generation++
				serves(generation)
			}
		}
	}
	if w.mayTakeOver(killed) {
		t.Error("one that was killed is succeeded after all")
	}
	w.disinherit()
	if w.mayTakeOver(killed) || w.legacy.some() {
		t.Error("there is something left")
	}
}

// Programs do not wait for ever for daemons that are killed one after the other before they
// have gone on, as by a limit of memory. Before that, or before the other hosts go on without
// this one, their number does not count.
func TestNobodyGoesOnForLong(t *testing.T) {
	const long = 2 * triesTime
	for _, x := range []struct {
		waited, tenure time.Duration
		longer         bool // than they may
	}{
		{0, 0, false},
		{long, 0, true},
		{long, time.Second, true},
		{long, long + time.Minute, false},
		{long + time.Minute, long, true},
	} {
		w := &watcher{log: slog.New(slog.DiscardHandler)}
		w.cfg.Tenure = x.tenure
		w.bequeathed(estate.Will{Generation: 1, InForce: true})
		killed := &errGone{"signal: killed", true, true}
		w.legacy.inForce = time.Now().Add(-2 * shortLife)
		if !w.mayTakeOver(killed) {
			t.Fatal("a daemon that was killed is not succeeded")
		}
		w.legacy.unserved = w.legacy.unserved.Add(-x.waited)
		for i := range maxTries + 1 {
			if got, want := w.mayTakeOver(killed), !x.longer || i < maxTries; got != want {
				t.Errorf("%+v: after %d that have not gone on: %v", x, i, got)
			}
		}
		w.bequeathed(estate.Will{Generation: 2, InForce: true}) // one has
		if got := w.mayTakeOver(killed); !got {
			t.Errorf("%+v: one that has served is not succeeded, since others before it had not", x)
		}
	}
}

// One that crashes, and has not ended when it is looked at, counts as one that has crashed.
func TestHowOneIsStuck(t *testing.T) {
	for how, want := range map[unix.WaitStatus]bool{0: true, 9: true, 6: false, 2 << 8: false} {
		err := &errStuck{how}
		if g, _ := gone(err); !g.crashed || g.killed != want {
			t.Errorf("%#x, %q: %+v, killed should be %v", how, err, g, want)
		}
	}
}

// headless starts a process that was killed, as it seems, and cannot end.
func headless(t *testing.T) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), headlessEnv+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "its first thread has ended", func() bool { return process.Dying(cmd.Process.Pid) })
	return cmd
}

// The mount of a daemon that was killed, and cannot end before another one goes on, is cut
// off if none does: else it would hang. One that has gone on, and died before it had answered
// what the other one hangs in, changes nothing.
func TestNobodyGoesOnAfterOneThatIsStuck(t *testing.T) {
	cut := 0
	w := &watcher{log: slog.New(slog.DiscardHandler)}
	w.legacy.cut = func(string) error { cut++; return nil }
	first, second := headless(t), headless(t)
	end := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	w.disinherit()
	w.legacy.isStuck(first.Process.Pid)
	end(first)
	w.bequeathed(estate.Will{Generation: 1, InForce: true}) // one has answered it
	w.disinherit()
	if cut != 0 {
		t.Errorf("a mount of which no daemon is stuck is cut off %d times", cut)
	}
	w.legacy.isStuck(first.Process.Pid)
	w.legacy.isStuck(second.Process.Pid)
	w.bequeathed(estate.Will{Generation: 2, InForce: true})
	w.disinherit()
	w.disinherit()
	if cut != 1 {
		t.Errorf("the mount of a daemon that is stuck is cut off %d times", cut)
	}
	end(second)
}

// A daemon that has just been killed, and had not said yet what it leaves, is not taken for
// one that does not end: the next one goes on with what the one before it has left.
func TestADaemonThatIsKilledBeforeItHasSaidAnything(t *testing.T) {
	cmd, log := headless(t), new(bytes.Buffer)
	w := &watcher{log: slog.New(slog.NewTextHandler(log, nil))}
	w.legacy.cut = func(string) error { t.Error("the mount is cut off"); return nil }
	w.bequeathed(estate.Will{Generation: 1, PID: os.Getpid(), InForce: true})
	time.AfterFunc(3*dyingEvery, func() { _ = cmd.Process.Kill() })
	err := w.awaitEnd(cmd.Process, cmd.Wait, true)
	how, _ := gone(err)
	if !how.crashed || log.Len() > 0 || !w.mayTakeOver(how) {
		t.Errorf("%v, and nobody goes on\n%s", how, log)
	}
}
