package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/trouble"
)

// What may pass is tried again, such as storage that fails, also if the watcher was
// started by the daemon.
func TestWhatMayPassIsNotFinal(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		err   error
		final bool
	}{{unix.EROFS, false}, {errors.New("refused"), true}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		(&Minder{lastWord: w}).ends(exitcode.With(exitcode.Refused, x.err))
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
	m := &Minder{}
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

// What cannot be written to the log's file now is written when that can be done again.
func TestTheLogMeanwhileLosesNothing(t *testing.T) {
	t.Parallel()
	logs, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	defer say.Close()
	state := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(state, nil, 0o600); err != nil { // no directory: nothing can be made there
		t.Fatal(err)
	}
	m := &Minder{cfg: config.Config{State: state}, logs: logs}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	defer func() { end(); <-done }()
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			m.logMeanwhile(ctx, 100*time.Millisecond)
		}
	}()
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := say.WriteString(line); err != nil {
			t.Fatal(err)
		}
		for { // the first one: until it was read
			n, err := unix.IoctlGetInt(int(logs.Fd()), unix.TIOCINQ)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 || line == "two\n" {
				break
			}
			<-time.After(time.Millisecond)
		}
	}
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
		b, _ := os.ReadFile(mountlog.Path(state)) // it is not there at first
		if string(b) == "one\ntwo\n" {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("the log has %q", b)
		}
	}
}

// What the watcher is told by stays open for the next program, whatever becomes of it
// in this one.
func TestWhatAMinderLeaves(t *testing.T) {
	t.Parallel()
	hear, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hear.Close()
	m := &Minder{root: hear, leash: hear, lastWord: say, watcher: 5}
	l, files, err := m.Leave()
	if err != nil || len(files) != 3 || l.Watcher != 5 {
		t.Fatalf("%+v, %v, %v", l, files, err)
	}
	defer process.CloseAll(files)
	say.Close()
	next, err := l.Minder(config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	next.Upgrading()
	for _, f := range []*os.File{next.lastWord, next.root, next.leash} {
		f.Close()
	}
	var word readyMessage
	if err := json.NewDecoder(hear).Decode(&word); err != nil || !word.Upgrading {
		t.Errorf("%+v, %v", word, err)
	}
	if _, err := unix.FcntlInt(uintptr(l.LastWord), unix.F_GETFD, 0); err != nil {
		t.Errorf("what another program would take is closed: %v", err)
	}
}
