package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/relay"
	"github.com/dmxfs/dmxfs/internal/version"
)

// When a daemon has been upgraded its watcher executes the new program as well, in its
// own process: it stays the parent of the daemon, and what systemd has started. If the
// daemon dies later, the new version is started.

// watchLeft is what a watcher leaves to the next program of its process.
type watchLeft struct {
	Config   config.Config `json:"config"`
	Daemon   int           `json:"daemon"`
	Started  uint64        `json:"started"` // see process.Started; 0: it is not known
	LastWord int           `json:"last_word"`
	Root     int           `json:"root"`
	Logs     int           `json:"logs"` // 0: none, and so on
	Hold     int           `json:"hold"`
	Lock     int           `json:"lock"`
	Front    bool          `json:"front"` // it logs to standard error
	// What the daemon leaves if it is killed.
	Estate   estate.Estate `json:"estate"`
	Life     int           `json:"life"`
	HoldLife int           `json:"hold_life"`
	// Whether the session of the process is the mount's own.
	OwnSession bool `json:"own_session"`
}

const watchLeftEnv = "DMXFS_WATCH_LEFT"

// mayLookDead reports whether the daemon is just executing another program.
func (w *watcher) mayLookDead() bool { return boottime.Milliseconds() < w.upgrading.Load() }

// heed reads what the daemon says, and returns when there is no more: with its last
// word, if that is one about its end.
func (w *watcher) heed(words *json.Decoder, c *charge) (last readyMessage, told bool) {
	for {
		var m readyMessage
		switch err := words.Decode(&m); {
		case err != nil:
			return last, told
		case m.Will != nil:
			w.bequeathed(*m.Will)
		case m.Upgrading:
			w.revoked()
			w.preference.begins()
			w.upgrading.Store(boottime.Milliseconds() + nodestate.UpgradingTime.Milliseconds())
		case m.Upgraded:
			w.log.Warn("this process goes on as it is: it cannot be the program that the daemon is by now", "err", w.become(c))
		default:
			last, told = m, true
		}
	}
}

// become executes the program of the daemon c in this process. It returns only with an
// error.
func (w *watcher) become(c *charge) error {
	program, err := process.OpenProgram(fmt.Sprintf("/proc/%d/exe", c.process.Pid))
	if err != nil {
		return err
	}
	defer program.Close()
	l := watchLeft{Config: w.cfg, Daemon: c.process.Pid, Started: c.started, Root: int(w.root.Fd()), OwnSession: w.preference.session}
	_, l.Front = w.out.(*os.File)
	files := []int{l.Root}
	for f, to := range map[*os.File]*int{c.lastWord: &l.LastWord, c.logs: &l.Logs, c.hold: &l.Hold, w.lock: &l.Lock, w.legacy.life: &l.Life, w.legacy.hold: &l.HoldLife} {
		if f == nil {
			continue
		}
		raw, err := f.SyscallConn()
		if err == nil { // Fd would have it block, should this program go on
			err = raw.Control(func(fd uintptr) { *to = int(fd) })
		}
		if err != nil {
			return err
		}
		files = append(files, *to)
	}
	l.Estate = w.legacy.wills()
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	left, err := relay.Put(&relay.Parts{Head: b})
	if err != nil {
		return err
	}
	defer unix.Close(left)
	// Who would go on is the next program, too; and that knows nothing of this one.
	w.next.end()
	defer w.next.prepare()
	w.copying.Lock() // no piece of the log is on its way
	defer w.copying.Unlock()
	return process.Inherit(append(files, left), func() error {
		env := append(os.Environ(), watchLeftEnv+"="+strconv.Itoa(left))
		err := syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), []string{process.Name, WatchCommand, w.cfg.Mountpoint}, env)
		return fmt.Errorf("execve: %w", err)
	})
}

// resumeWatch watches a daemon on, as the program before this one has in this process.
func resumeWatch(ctx context.Context, stderr io.Writer) error {
	left, err := strconv.Atoi(os.Getenv(watchLeftEnv))
	os.Unsetenv(watchLeftEnv)
	if err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("%s: %w", watchLeftEnv, err))
	}
	p, err := relay.Get(left)
	if err != nil {
		return err
	}
	process.CloseOnExec()
	unix.Close(left)
	var l watchLeft
	if err := json.Unmarshal(p.Head, &l); err != nil {
		return err
	}
	w, err := l.watcher(stderr)
	if err != nil {
		return err
	}
	w.log.Info("the process that watches the daemon is the new program, too", "version", version.String())
	if w.charge.hold != nil {
		_, _ = w.charge.hold.Write([]byte{1}) // see Minder.Upgraded
	}
	return w.watch(ctx)
}

// watcher is the process that goes on with what l has.
func (l *watchLeft) watcher(stderr io.Writer) (*watcher, error) {
	daemon, err := os.FindProcess(l.Daemon)
	if err != nil {
		return nil, err
	}
	if started, err := process.Started(l.Daemon); l.Started != 0 && (err != nil || started != l.Started) {
		_ = daemon.Release() // it has ended, and the number may be that of another one
	}
	if err := unix.SetNonblock(l.LastWord, true); err != nil { // see hush
		return nil, err
	}
	file := func(fd int, name string) *os.File {
		if fd == 0 {
			return nil
		}
		return os.NewFile(uintptr(fd), name)
	}
	out := stderr
	if !l.Front {
		out = mountlog.File(l.Config)
	}
	log, err := mountlog.New(l.Config, out)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		cfg: l.Config, log: log, out: out, root: file(l.Root, l.Config.Source), served: true, lock: file(l.Lock, watcherFile),
		charge: &charge{process: daemon, started: l.Started, lastWord: file(l.LastWord, "last word"), logs: file(l.Logs, "log"), hold: file(l.Hold, "leash")},
		ready:  func([]string) {},
	}
	w.preference.session = l.OwnSession
	w.legacy.goOn(l.Estate, file(l.Life, "lifeline"), file(l.HoldLife, "end of the lifeline"))
	if w.root == nil || w.charge.lastWord == nil {
		return nil, errors.New("what the program before this one has left is not all there")
	}
	return w, nil
}
