package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// A mount is two processes. One serves it. The other, which does next to
// nothing and so hardly ever fails, watches the first, and starts it anew when
// it dies: the dead mount stays in its place meanwhile, where it fails, so that
// programs never get at the shared directory without locks.

const (
	serveCommand = "serve-mount"
	watchCommand = "watch-mount"
	// Descriptors of the process that serves a mount, beside the standard
	// ones: where to tell that it is usable, and the shared directory.
	readyFD = 3
	rootFD  = 4
)

// readyMessage is how a process tells the one that started it how it went.
type readyMessage struct {
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"`
	// Passing: it makes sense to try again, whatever Code says.
	Passing bool `json:"passing,omitempty"`
}

// watcher keeps the process that serves a mount alive.
type watcher struct {
	cfg  Config
	log  *slog.Logger
	out  io.Writer // standard error of the process
	root *os.File
	// ready is called when the mount is usable for the first time.
	ready func()

	lock    *os.File // says that this is the watcher; nil before it was usable
	silence func()   // ends the answers of waits; may be nil

	served   bool // it was usable at least once
	failures int  // starts in a row after which it was not
	waits    waits
	found    chan found // of a look at the shared directory that hangs; else nil
}

// errGone is how a process has ended that was killed, or has failed.
type errGone struct{ state string }

func (e *errGone) Error() string { return "the process that serves the mount has ended: " + e.state }

// run returns when the mount is gone, with nil if that is as wished, or when it
// makes no sense to serve it again.
func (w *watcher) run(ctx context.Context) error {
	for {
		usable, err := w.once(ctx)
		if err == nil || !w.served {
			return err
		}
		if ctx.Err() != nil || !w.cfg.Restart || final(err) {
			return err
		}
		// After one that was usable the next one comes at once: it frees the
		// locks of the dead one. If it is only the last of many in a short
		// time, the membership pauses before it joins.
		if w.failures++; usable {
			w.failures = 0
		}
		pause := backoff(w.failures)
		w.waits.begin(err)
		w.log.Error("the mount has lost its daemon: it is started anew", "err", err, "pause", pause)
		w.tellSystemd(fmt.Sprintf("STATUS=the daemon has died, the mount fails until the next one is there: %v", err))
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// backoff is the pause after n starts in a row that came to nothing: none, then
// from half a second to ten.
func backoff(n int) time.Duration {
	if n == 0 {
		return 0
	}
	return min(500*time.Millisecond<<min(n-1, 10), 10*time.Second)
}

// once starts the process and waits for its end. It reports whether the mount
// was usable meanwhile.
func (w *watcher) once(ctx context.Context) (usable bool, err error) {
	cfg := w.cfg
	if cfg.Replace = isDead(cfg.Mountpoint); cfg.Replace {
		if err := replaceable(cfg); err != nil {
			return false, err
		}
	}
	if w.served {
		if err := w.reopen(ctx); err != nil {
			return false, err
		}
	}
	in, err := json.Marshal(cfg)
	if err != nil {
		return false, err
	}
	r, tell, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer r.Close()
	// The program file may have been replaced since, or removed (go run).
	cmd := exec.Command("/proc/self/exe", serveCommand, cfg.Mountpoint)
	cmd.Args[0] = processName
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = w.out
	cmd.ExtraFiles = []*os.File{tell, w.root}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NOTIFY_SOCKET=") })
	// Of a group of its own: what a terminal sends is for the watcher, which
	// passes it on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = startReduced(cmd, cfg)
	tell.Close()
	if err != nil {
		return false, fmt.Errorf("start the daemon: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(unix.SIGTERM) }) // it may have ended already
	defer stop()
	ended := make(chan struct{})
	var help sync.WaitGroup
	help.Go(func() { helpToEnd(ended, cmd.Process.Pid, cfg.Mountpoint, w.log) })

	var m readyMessage
	told := json.NewDecoder(r).Decode(&m) == nil
	if usable = told && m.Error == ""; usable {
		w.waits.end()
		if !w.served {
			w.served = true
			w.ready()
			giveBack(w.log)
			w.tellSystemd(sd.SdNotifyReady + "\nSTATUS=serving " + cfg.Mountpoint)
		} else {
			w.log.Info("the mount works again", "mount", cfg.Mountpoint)
			w.tellSystemd("STATUS=serving " + cfg.Mountpoint)
		}
	}
	err = cmd.Wait()
	close(ended)
	help.Wait()
	switch {
	case told && m.Error != "":
		err := withCode(m.Code, errors.New(m.Error))
		if m.Passing {
			err = &mayPass{err}
		}
		return usable, err
	case err == nil:
		return usable, nil
	}
	return usable, withCode(cmd.ProcessState.ExitCode(), &errGone{cmd.ProcessState.String()})
}

// tellSystemd does nothing where systemd has not started the process.
func (w *watcher) tellSystemd(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		w.log.Debug("systemd cannot be told", "state", state, "err", err)
	}
}

// watch serves a mount by a process that is started anew when it dies.
func watch(ctx context.Context, cfg Config, log *slog.Logger, out io.Writer, ready func()) error {
	if err := endDying(cfg.State, cfg.Mountpoint); err != nil {
		return err
	}
	if err := tryStorage(ctx, cfg); err != nil {
		return err
	}
	root, err := openSource(cfg)
	if err != nil {
		return err
	}
	w := &watcher{cfg: cfg, log: log, out: out, root: root}
	defer func() { w.root.Close() }() // the one it has then
	// The log is there, too: nothing is logged before.
	if err := stateOffMounts(cfg); err != nil {
		return err
	}
	if err := makeState(cfg.State, int(root.Fd())); err != nil {
		return err
	}
	w.ready = func() {
		// Not before: the state directory is the daemon's to make.
		lock, err := lockWatcher(cfg.State)
		if err != nil {
			log.Warn("dmxfs unmount will not find this process when its daemon has died", "err", err)
		}
		w.lock = lock
		stop, err := w.waits.answer(cfg)
		if err != nil {
			log.Warn("dmxfs status will not tell what this process waits for", "err", err)
		}
		w.silence = stop
		ready()
	}
	defer func() {
		if w.lock != nil {
			w.lock.Close()
		}
		if w.silence != nil {
			w.silence()
		}
	}()
	defer context.AfterFunc(ctx, func() { w.tellSystemd(sd.SdNotifyStopping) })()
	err = w.run(ctx)
	if err != nil {
		log.Error("the mount is not served any more", "mount", cfg.Mountpoint, "err", err)
	}
	return err
}

// newWatchCommand is what a mount in the background runs as. Its configuration
// comes on standard input, and what becomes of it goes to descriptor 3.
func newWatchCommand(s streams) *cobra.Command {
	return &cobra.Command{
		// The mount point is for people who look at the processes.
		Use: watchCommand + " MOUNTPOINT", Hidden: true, Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, _ []string) error {
			nameProcess()
			cfg, report, err := startedBy(s)
			if err != nil {
				return err
			}
			out := logFile(cfg)
			log, err := newLogger(cfg, out)
			if err == nil {
				err = watch(c.Context(), cfg, log, out, func() { report(nil) })
			}
			report(err)
			return err
		},
	}
}

// newServeCommand is the process that serves a mount.
func newServeCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: serveCommand + " MOUNTPOINT", Hidden: true, Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, _ []string) error {
			nameProcess()
			// The log goes to the watcher. The mount must survive its end.
			signal.Ignore(unix.SIGPIPE)
			cfg, report, err := startedBy(s)
			if err != nil {
				return err
			}
			unix.CloseOnExec(rootFD)
			root := os.NewFile(rootFD, cfg.Source)
			log, err := newLogger(cfg, s.err)
			if err == nil {
				err = serve(c.Context(), cfg, root, log, func() { report(nil); giveBack(log) })
			}
			report(err)
			return err
		},
	}
}

// startedBy reads what the process that started this one has for it; report
// tells it, once, that all is well or what is wrong.
func startedBy(s streams) (cfg Config, report func(error), err error) {
	if err := json.NewDecoder(s.in).Decode(&cfg); err != nil {
		return cfg, nil, withCode(exitUsage, fmt.Errorf("configuration on standard input: %w", err))
	}
	unix.CloseOnExec(readyFD)
	tell := os.NewFile(readyFD, "ready")
	told := false
	return cfg, func(err error) {
		if told {
			return
		}
		told = true
		m := readyMessage{}
		if err != nil {
			m = readyMessage{err.Error(), exitCode(err), passing(err)}
		}
		_ = json.NewEncoder(tell).Encode(m) // the other end may be gone
		tell.Close()
	}, nil
}
