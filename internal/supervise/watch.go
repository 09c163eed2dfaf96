package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/crash"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/trial"
	"github.com/dmxfs/dmxfs/internal/trouble"
)

// watcher keeps the process that serves a mount alive.
type watcher struct {
	cfg  config.Config
	log  *slog.Logger
	out  io.Writer // standard error of the process
	root *os.File
	// ready is called when the mount is usable for the first time, with what who
	// mounts it should be told.
	ready func(warnings []string)

	lock    *os.File // says that this is the watcher; nil before it was usable
	silence func()   // ends the answers of waits; may be nil

	charge *charge // the daemon that runs already; nil: start one
	// upgrading is until when the daemon may look dead, in ms of CLOCK_BOOTTIME.
	upgrading  atomic.Int64
	copying    sync.Mutex // held while a piece of the log is neither in the pipe nor written
	served     bool       // it was usable at least once
	failures   int        // starts in a row after which it was not
	waits      waits
	found      chan found // of a look at the shared directory that hangs; else nil
	legacy     legacy     // what the daemon leaves if it is killed
	next       next       // who goes on with that
	preference preference
}

// errGone is how a process has ended that was killed, or has failed.
type errGone struct {
	state   string
	crashed bool // it had no time to end in order
	killed  bool // and by SIGKILL
}

func (e *errGone) Error() string { return "the process that serves the mount has ended: " + e.state }

// run returns when the mount is gone, with nil if that is as wished, or when it
// makes no sense to serve it again. Asked to end while there is no daemon, it takes
// the dead mount away, as the daemon would.
func (w *watcher) run(ctx context.Context) error {
	err := w.keep(ctx)
	if ctx.Err() == nil || !w.served || !mountpoint.IsDead(w.cfg.Mountpoint) {
		return err
	}
	gone := mountpoint.Remove(w.cfg.Mountpoint, false)
	if exitcode.Of(gone) == exitcode.Busy {
		w.log.Warn("asked to end while programs use the mount, which is dead: it is taken away from them", "mount", w.cfg.Mountpoint)
		gone = mountpoint.Remove(w.cfg.Mountpoint, true)
	}
	return gone
}

// keep serves the mount by one process after the other.
func (w *watcher) keep(ctx context.Context) error {
	turn := w.once
	if w.charge != nil {
		turn = w.adopt
	}
	w.next.watcher = w
	defer w.next.close()
	defer w.disinherit()
	if w.legacy.some() { // another program has watched before
		w.next.prepare()
	}
	for {
		took := w.legacy.takes()
		usable, err := turn(ctx)
		turn = w.once
		if err == nil || !w.served {
			return err
		}
		if ctx.Err() != nil || !w.cfg.Restart || trouble.Final(err) {
			return err
		}
		if w.mayTakeOver(err) {
			w.preference.begins()
			w.log.Error("the mount has lost its daemon: another one goes on", "err", err)
			continue
		}
		w.disinherit() // before anything looks at the mount
		if (usable || took) && w.takenAway() {
			w.log.Info("unmounted while it had no daemon", "mount", w.cfg.Mountpoint, "err", err)
			return nil
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

// takenAway reports whether the mount, whose daemon has just ended, is not in its place any
// more: somebody has unmounted it, and wants no other one. What a daemon leaves that was killed
// stays mounted, though it is dead. (One that has not come to serve may have taken away the dead
// mount of the one before it.)
func (w *watcher) takenAway() bool {
	all, err := mountinfo.Read()
	return err == nil && !slices.ContainsFunc(all, func(m mountinfo.Mount) bool {
		return m.Point == w.cfg.Mountpoint && m.Type == mountpoint.Type
	})
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
	cfg, takes := w.cfg, w.legacy.takes()
	if !takes { // else the mount waits for the daemon, and so would who looks at it
		if cfg.Replace = mountpoint.IsDead(cfg.Mountpoint); cfg.Replace {
			if err := mountpoint.Replaceable(cfg); err != nil {
				return false, err
			}
		}
		if w.served {
			if err := w.reopen(ctx); err != nil {
				return false, err
			}
		}
	}
	c, err := w.next.start(cfg)
	if err != nil {
		return false, err
	}
	defer c.lastWord.Close()
	w.next.standsInFor(&c.charge)
	ended := make(chan struct{})
	var help sync.WaitGroup
	help.Go(func() { askToEnd(ctx, ended, c.process) })
	help.Go(func() { helpToEnd(ended, c.process.Pid, cfg.Mountpoint, w.mayNotCut, w.log) })
	m, told, heard := readyMessage{}, false, make(chan struct{})
	go func() {
		defer close(heard)
		words := json.NewDecoder(c.lastWord)
		if m, told = w.first(words); told && m.Error == "" {
			w.calm(c.process.Pid)
			w.usable(m.Warnings)
			w.heed(words, &c.charge)
		}
	}()
	err = w.awaitEnd(c.process, c.wait, takes)
	c.hush(heard)
	close(ended)
	help.Wait()
	if w.legacy.copies.Go(c.close); !cfg.Takeover { // else a keeper may have the log open
		w.legacy.copies.Wait()
	}
	usable = told && m.Error == ""
	switch {
	case takes && told && m.Error != "":
		return true, &errGone{state: "it cannot go on with what the one before it has left: " + m.Error}
	case told && m.Error != "":
		err := exitcode.With(m.Code, errors.New(m.Error))
		if m.Passing {
			err = trouble.MayPass(err)
		}
		return usable, err
	case err == nil:
		return usable, nil
	}
	how, code := gone(err)
	return usable, exitcode.With(code, how)
}

// calm has the runtime of a daemon wake up less often, see process.CalmMonitor.
func (w *watcher) calm(daemon int) {
	if err := process.CalmMonitor(daemon); err != nil {
		w.log.Debug("the monitor of the daemon's runtime looks as often as ever", "err", err)
	}
}

// usable is called when a daemon says that the mount is.
func (w *watcher) usable(warnings []string) {
	w.waits.end()
	if !w.served {
		w.served = true
		w.ready(warnings)
		process.GiveBackMemory(w.log)
		w.tellSystemd(sd.SdNotifyReady + "\nSTATUS=serving " + w.cfg.Mountpoint)
		return
	}
	w.log.Info("the mount works again", "mount", w.cfg.Mountpoint)
	w.tellSystemd("STATUS=serving " + w.cfg.Mountpoint)
}

// askEvery is how often a daemon is asked to end.
const askEvery = time.Second

// askToEnd asks a daemon to end when ctx does, until ended is closed: one that is just
// about to execute another program does not hear it.
func askToEnd(ctx context.Context, ended <-chan struct{}, p *os.Process) {
	select {
	case <-ctx.Done():
	case <-ended:
		return
	}
	again := time.NewTicker(askEvery)
	defer again.Stop()
	for {
		_ = p.Signal(unix.SIGTERM) // it may have ended already
		select {
		case <-again.C:
		case <-ended:
			return
		}
	}
}

// tellSystemd does nothing where systemd has not started the process.
func (w *watcher) tellSystemd(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		w.log.Debug("systemd cannot be told", "state", state, "err", err)
	}
}

// Watch serves a mount by a process that is started anew when it dies.
func Watch(ctx context.Context, cfg config.Config, log *slog.Logger, out io.Writer, ready func(warnings []string)) error {
	if err := EndDying(ctx, cfg.State, cfg.Mountpoint); err != nil {
		return err
	}
	if err := trial.Try(ctx, cfg); err != nil {
		return err
	}
	root, err := mountpoint.OpenSource(cfg)
	if err != nil {
		return err
	}
	w := &watcher{cfg: cfg, log: log, out: out, root: root}
	// The log is there, too: nothing is logged before.
	if err := statedir.OffMounts(cfg); err != nil {
		root.Close()
		return err
	}
	if err := statedir.Make(cfg.State, int(root.Fd())); err != nil {
		root.Close()
		return err
	}
	w.ready = func(warnings []string) {
		// Not before: the state directory is the daemon's to make.
		w.beFound()
		ready(warnings)
	}
	return w.watch(ctx)
}

// watch is run with what belongs to it.
func (w *watcher) watch(ctx context.Context) error {
	if w.charge != nil {
		w.next.standsInFor(w.charge)
	}
	if w.cfg.Takeover {
		w.preference.start(w.next.processes, w.charge != nil)
	}
	mountlog.KeepLastWords(w.cfg, crash.Watcher, w.log)
	defer func() {
		if w.lock != nil {
			w.lock.Close()
		}
		if w.silence != nil {
			w.silence()
		}
		w.root.Close() // the one it has then
	}()
	defer context.AfterFunc(ctx, func() { w.tellSystemd(sd.SdNotifyStopping) })()
	if w.charge != nil {
		w.calm(w.charge.process.Pid)
		w.beFound()
		w.ready(nil)
		process.GiveBackMemory(w.log)
	}
	err := w.run(ctx)
	if err != nil {
		w.log.Error("the mount is not served any more", "mount", w.cfg.Mountpoint, "err", err)
	}
	return err
}

// beFound lets commands find this process when it has no daemon.
func (w *watcher) beFound() {
	if w.lock == nil { // else it is inherited
		lock, err := lockWatcher(w.cfg.State)
		if err != nil {
			w.log.Warn("dmxfs unmount will not find this process when its daemon has died", "err", err)
		}
		w.lock = lock
	}
	stop, err := w.waits.answer(w.cfg)
	if err != nil {
		w.log.Warn("dmxfs status will not tell what this process waits for", "err", err)
	}
	w.silence = stop
}

// RunWatch is what a mount in the background runs as. Its configuration comes from in,
// standard input, and what becomes of it goes to descriptor 3.
func RunWatch(ctx context.Context, in io.Reader, stderr io.Writer) error {
	process.TakeName()
	process.Outlive()
	if os.Getenv(watchLeftEnv) != "" {
		return resumeWatch(ctx, stderr)
	}
	cfg, report, err := startedBy(json.NewDecoder(in))
	if err != nil {
		return err
	}
	out := mountlog.File(cfg)
	log, err := mountlog.New(cfg, out)
	if err == nil {
		err = Watch(ctx, cfg, log, out, func(warnings []string) { report(nil, warnings...) })
	}
	report(err)
	return err
}
