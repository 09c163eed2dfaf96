package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/trouble"
)

// The hidden commands that run [Serve] and [RunWatch], each with the mount point as its
// argument.
const (
	ServeCommand = "serve-mount"
	WatchCommand = "watch-mount"
)

// Descriptors of the process that serves a mount, beside the standard ones.
const (
	readyFD = 3 // where to tell that it is usable
	rootFD  = 4 // the shared directory
	leashFD = 5 // the reading end of a pipe that the watcher has open for writing
	logFD   = 6 // the reading end of the pipe that is standard error; none if that is no pipe
	lifeFD  = 7 // the reading end of a pipe that the watcher has open for writing; none without a takeover
)

// readyMessage is how a process tells the one that started it how it went.
type readyMessage struct {
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"`
	// Passing: it makes sense to try again, whatever Code says.
	Passing bool `json:"passing,omitempty"`
	// Warnings are for who mounts: all is well, and may not be as it was meant.
	Warnings []string `json:"warnings,omitempty"`
	// Upgrading: the process is about to execute another program. For a moment it
	// may look like one that was killed and cannot end.
	Upgrading bool `json:"upgrading,omitempty"`
	// Upgraded: the process goes on with another program, and the watcher is to be
	// that one, too. How the process ends is told in the same place.
	Upgraded bool `json:"upgraded,omitempty"`
	// Will is where all is that the next daemon goes on with if this one is killed.
	Will *estate.Will `json:"will,omitempty"`
}

// Daemon serves a mount by the process that calls it, until the mount is gone, and takes
// root, the shared directory. ready is called when the mount is usable.
type Daemon func(ctx context.Context, cfg config.Config, m *Minder, root *os.File, log *slog.Logger, ready func(warnings []string)) error

// Serve is the process that serves a mount, by serve. What its watcher has for it comes
// from in, its standard input, and by descriptors.
func Serve(ctx context.Context, in io.Reader, stderr io.Writer, serve Daemon) error {
	Prepare()
	stderr = unblocked(stderr, logFD)
	words := json.NewDecoder(in)
	cfg, report, err := startedBy(words)
	if err != nil {
		return err
	}
	var left *estate.Estate
	if isToWait() {
		var l watchLeft
		if err := words.Decode(&l); err != nil {
			return fmt.Errorf("what the watcher has: %w", err)
		}
		if ctx, left, err = awaitTurn(ctx); err == nil && left == nil {
			return standIn(ctx, &l, stderr)
		}
		// A keeper that this process starts must not have the pipe open that it ends with.
		for _, fd := range []int{l.HoldLife, l.LastWord, l.Logs, l.Hold} {
			if fd != 0 {
				unix.Close(fd)
			}
		}
	} else {
		left, err = takesOver(words)
	}
	unix.CloseOnExec(rootFD)
	root := os.NewFile(rootFD, cfg.Source)
	var minder *Minder
	if err == nil {
		minder, err = newMinder(cfg)
	}
	if err == nil {
		minder.estate = left
		err = serveWatched(ctx, cfg, minder, root, stderr, false, serve, report)
	}
	report(err)
	return err
}

// GoOn is Serve for a process in which another program has served the mount.
func GoOn(ctx context.Context, cfg config.Config, m *Minder, root *os.File, stderr io.Writer, serve Daemon) error {
	if m.logs != nil {
		stderr = unblocked(stderr, int(m.logs.Fd())) // the program before this one may not have done so
	}
	return serveWatched(ctx, cfg, m, root, stderr, true, serve, func(error, ...string) {})
}

// Prepare is the begin of a process that serves a mount and has nothing else to do: it
// gets its name, and outlives who takes its log.
func Prepare() {
	if isToWait() {
		process.SetName(process.WaitsName)
	} else {
		process.TakeName()
	}
	process.Outlive() // the log goes to the watcher, and the mount must survive its end
}

// serveWatched has a process that is watched, always, serve a mount. goesOn: it was usable
// before.
func serveWatched(ctx context.Context, cfg config.Config, m *Minder, root *os.File, out io.Writer, goesOn bool, serve Daemon, report func(error, ...string)) error {
	lines := mountlog.NewQueue(out)
	log, err := mountlog.New(cfg, lines)
	if err != nil {
		return err
	}
	lines.Gap = func(n int) {
		log.Warn("lines of the log were dropped, since nothing took them: the process that watches this one was stopped, or what the log goes to stands still", "lines", n)
	}
	defer lines.Flush(mountlog.LastLogs)
	m.log, m.flush = log, func() { lines.Flush(mountlog.LastLogs) }
	// Who waits for a mount that was never there has learnt of the end of the
	// watcher. A dead one needs a daemon all the same.
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var usable atomic.Bool
	usable.Store(goesOn)
	minded, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		m.alone()
		close(m.left)
		switch {
		case usable.Load() || cfg.Replace:
		case m.estate != nil:
			defer m.awaitsService(&usable)()
		default:
			end(errors.New("the process that watches this one has ended before the mount was usable"))
			return
		}
		m.run(minded)
	}()
	err = serve(ctx, cfg, m, root, log, func(warnings []string) {
		usable.Store(true)
		report(nil, warnings...)
		if m.estate == nil { // else programs wait, and what is given back is needed again
			process.GiveBackMemory(log)
		}
	})
	if err != nil && m.estate != nil && !usable.Load() && ctx.Err() == nil {
		err = m.passOn(err)
	}
	stop()
	m.ends(err)
	return err
}

// startedBy reads what the process that started this one has for it; report
// tells it, once, that all is well or what is wrong.
func startedBy(words *json.Decoder) (cfg config.Config, report func(error, ...string), err error) {
	if err := words.Decode(&cfg); err != nil {
		return cfg, nil, exitcode.With(exitcode.Usage, fmt.Errorf("configuration on standard input: %w", err))
	}
	unix.CloseOnExec(readyFD)
	tell := os.NewFile(readyFD, "ready")
	told := false
	return cfg, func(err error, warnings ...string) {
		if told {
			return
		}
		told = true
		m := readyMessage{Warnings: warnings}
		if err != nil {
			m = readyMessage{Error: err.Error(), Code: exitcode.Of(err), Passing: trouble.Passing(err)}
		}
		_ = json.NewEncoder(tell).Encode(m) // the other end may be gone
		tell.Close()
	}, nil
}
