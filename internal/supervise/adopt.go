package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/trouble"
)

// AdoptCommand is the hidden command that runs [Adopt], with the mount point as its
// argument.
const AdoptCommand = "adopt-mount"

// Descriptors of a watcher that adopts a daemon, beside readyFD and rootFD.
const (
	lastWordFD  = 5 // where the daemon says how it ends; ends with it
	adoptsLogFD = 6 // see logFD
)

// copyLog writes what a daemon logs to out until nobody has the pipe open any
// more. A line that cannot be written, as to a full disk, is lost; those after
// it are not.
// copying is held while a piece is on its way.
func copyLog(out io.Writer, logs *os.File, copying *sync.Mutex) {
	b := make([]byte, 1<<16)
	piece := func() bool {
		copying.Lock()
		defer copying.Unlock()
		n, err := logs.Read(b)
		if n > 0 {
			_, _ = out.Write(b[:n])
		}
		return err == nil
	}
	for fd := int32(logs.Fd()); ; {
		if _, err := unix.Poll([]unix.PollFd{{Fd: fd, Events: unix.POLLIN}}, -1); err != unix.EINTR && !piece() {
			return
		}
	}
}

// charge is a daemon that was adopted, or that this process has started.
type charge struct {
	process  *os.Process
	started  uint64 // see process.Started; 0: it is not known
	lastWord *os.File
	logs     *os.File // nil if it writes to where this process does
	hold     *os.File // the other end of its leash; nil if it was adopted
}

// wait waits for the end of a daemon, and returns how it has ended: [errUnseen] if it is no
// child of this process.
func (c *charge) wait() error {
	s, err := c.process.Wait()
	if err != nil {
		_ = c.process.WithHandle(func(pidfd uintptr) { // else it is known to have ended
			p := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
			for _, err := unix.Poll(p, -1); err == unix.EINTR; {
				_, err = unix.Poll(p, -1)
			}
		})
		return errUnseen
	}
	if !s.Success() {
		err = &exec.ExitError{ProcessState: s}
	}
	return err
}

// errUnseen is how a daemon has ended that another process has started: only that knows. If
// it ended by itself it has said so.
var errUnseen = errors.New("it was killed, or has failed")

// adopt returns when the daemon that was adopted has ended; see once.
func (w *watcher) adopt(ctx context.Context) (usable bool, err error) {
	c := w.charge
	var help sync.WaitGroup
	ended := make(chan struct{})
	help.Go(func() { askToEnd(ctx, ended, c.process) })
	help.Go(func() { helpToEnd(ended, c.process.Pid, w.cfg.Mountpoint, w.mayNotCut, w.log) })
	if c.logs != nil {
		w.legacy.copies.Go(func() {
			copyLog(w.out, c.logs, &w.copying)
			c.logs.Close()
		})
	}
	m, told, heard := readyMessage{}, false, make(chan struct{})
	go func() {
		defer close(heard)
		m, told = w.heed(json.NewDecoder(c.lastWord), c)
	}()
	how := &errGone{state: errUnseen.Error()}
	if c.hold != nil { // it was started by a watcher
		if err := w.awaitEnd(c.process, c.wait, false); err != nil {
			how, _ = gone(err)
		}
		c.hush(heard)
	}
	<-heard
	close(ended)
	help.Wait()
	c.lastWord.Close()
	if !w.cfg.Takeover { // else a keeper may have the log open
		w.legacy.copies.Wait()
	}
	switch {
	case !told:
		return true, how
	case m.Passing:
		return true, trouble.MayPass(&errGone{state: m.Error})
	case m.Error != "":
		return true, exitcode.With(m.Code, &errGone{state: m.Error})
	}
	return true, nil
}

// daemonEnv has the process of the daemon that starts a watcher: the parent of that
// one is another process when the daemon has ended meanwhile, to which no signals go.
const daemonEnv = "DMXFS_DAEMON"

// adopted is the daemon that has started this process. If it has ended it is a process
// that takes no signals.
func adopted() (*os.Process, error) {
	pid, err := strconv.Atoi(os.Getenv(daemonEnv))
	if err != nil {
		return nil, fmt.Errorf("%s is started by a daemon, and by nobody else", AdoptCommand)
	}
	os.Unsetenv(daemonEnv)
	daemon, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	if os.Getppid() != pid {
		_ = daemon.Release() // the number may be that of another one
	}
	return daemon, nil
}

// Adopt is a watcher that a daemon has started, whose own has ended. What that daemon
// has for it is in in.
func Adopt(ctx context.Context, in io.Reader, stderr io.Writer) error {
	process.TakeName()
	process.Outlive()
	daemon, err := adopted()
	if err != nil {
		return err
	}
	cfg, report, err := startedBy(json.NewDecoder(in))
	if err != nil {
		return err
	}
	for _, fd := range []int{rootFD, lastWordFD} {
		unix.CloseOnExec(fd)
	}
	charge := &charge{process: daemon, lastWord: os.NewFile(lastWordFD, "last word")}
	out := stderr
	if _, err := unix.FcntlInt(adoptsLogFD, unix.F_SETFD, unix.FD_CLOEXEC); err == nil {
		charge.logs = os.NewFile(adoptsLogFD, "log")
		out = mountlog.File(cfg)
	}
	log, err := mountlog.New(cfg, out)
	if err == nil {
		w := &watcher{cfg: cfg, log: log, out: out, root: os.NewFile(rootFD, cfg.Source), charge: charge, served: true}
		w.ready = func([]string) { report(nil) }
		err = w.watch(ctx)
	}
	report(err)
	return err
}
