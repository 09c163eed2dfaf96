package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/trouble"
)

// A watcher can be killed, too. The daemon notices, by a pipe that the watcher
// has open and nobody else, and starts another one, which adopts the daemon: it
// logs for it, and starts it anew when it dies.

// Minder sees to it that a daemon has a watcher.
type Minder struct {
	cfg         config.Config
	log         *slog.Logger
	root, leash *os.File
	logs        *os.File // see logFD; nil if there is none
	unwritten   []byte   // was read of logs; used by logMeanwhile alone
	flush       func()   // writes out the log

	// starting is held while a watcher is being started. Then nobody would know of
	// it if this program was replaced.
	starting sync.Mutex

	mu       sync.Mutex
	missing  error         // why there is no watcher; nil if there is one
	lastWord *os.File      // to the watcher, if that is not the one that started the daemon
	watcher  int           // that one; 0: the one that started it, which is another program by now
	tell     *os.File      // to the one that started it
	untold   *readyMessage // how the daemon ends, while there is no watcher to be told

	followed chan struct{} // of 1: the one that started it is another program
	left     chan struct{} // closed when the one that started it has ended

	life   *os.File       // see lifeFD; nil if there is none
	estate *estate.Estate // what the daemon goes on with; nil: it begins anew

	endsLate endsLate
}

// newMinder takes what the watcher has handed down.
func newMinder(cfg config.Config) (*Minder, error) {
	root, err := unix.FcntlInt(rootFD, unix.F_DUPFD_CLOEXEC, logFD+1)
	if err != nil {
		return nil, fmt.Errorf("keep the shared directory open: %w", err)
	}
	tell, err := unix.FcntlInt(readyFD, unix.F_DUPFD_CLOEXEC, logFD+1)
	if err != nil {
		return nil, fmt.Errorf("keep the way to the watcher: %w", err)
	}
	unix.CloseOnExec(leashFD)
	m := &Minder{
		cfg: cfg, flush: func() {}, followed: make(chan struct{}, 1), left: make(chan struct{}),
		root: os.NewFile(uintptr(root), cfg.Source), leash: os.NewFile(leashFD, "leash"), tell: os.NewFile(uintptr(tell), "tell"),
	}
	if _, err := unix.FcntlInt(logFD, unix.F_SETFD, unix.FD_CLOEXEC); err == nil {
		m.logs = os.NewFile(logFD, "log")
	}
	if _, err := unix.FcntlInt(lifeFD, unix.F_SETFD, unix.FD_CLOEXEC); err == nil && cfg.Takeover {
		m.life = os.NewFile(lifeFD, "lifeline")
	}
	return m, nil
}

// Hold has no watcher be started until [Minder.Release]: the next program of this process
// would not know of it.
func (m *Minder) Hold() { m.starting.Lock() }

// TryHold is [Minder.Hold], unless one is just being started.
func (m *Minder) TryHold() bool { return m.starting.TryLock() }

// Release ends what Hold or TryHold has begun.
func (m *Minder) Release() { m.starting.Unlock() }

// FlushLog writes out what was logged, as far as that takes no time.
func (m *Minder) FlushLog() { m.flush() }

// Problem is what status says of the watcher, nil if there is one.
func (m *Minder) Problem() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.missing
}

func (m *Minder) setMissing(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missing = err
}

// alone returns when the process that started this one has ended.
func (m *Minder) alone() {
	for {
		if n, err := m.leash.Read(make([]byte, 1)); n == 0 || err != nil {
			return
		}
		select {
		case m.followed <- struct{}{}:
		default:
		}
	}
}

// run starts a watcher whenever there is none, until ctx ends. It is called
// when the first one has ended.
func (m *Minder) run(ctx context.Context) {
	m.awaitInherited()
	for tries := 0; ctx.Err() == nil; {
		m.log.Warn("the process that watches this daemon has ended: another one is started")
		m.setMissing(errors.New("the process that would start the daemon anew has ended; another one is started"))
		began := time.Now()
		err := m.watched()
		if ctx.Err() != nil {
			return
		}
		if tries++; time.Since(began) > time.Minute {
			tries = 0 // one that was killed is replaced at once, however often that is
		}
		if err != nil {
			m.log.Error("no process watches this daemon: if it dies, the mount stays dead until it is mounted anew", "err", err)
			m.setMissing(fmt.Errorf("no process watches the daemon: if it dies, the mount stays dead until it is mounted anew; it is tried again: %w", err))
		}
		m.logMeanwhile(ctx, backoff(tries))
	}
}

// watched starts a watcher, and returns when it has ended; the error says why
// none could be started.
func (m *Minder) watched() error {
	in, err := json.Marshal(m.cfg)
	if err != nil {
		return err
	}
	stdin, err := process.Text("configuration", in) // it has all of it whenever this process ends
	if err != nil {
		return err
	}
	defer stdin.Close()
	ready, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	hear, say, err := os.Pipe()
	if err != nil {
		tell.Close()
		return err
	}
	cmd := exec.Command("/proc/self/exe", AdoptCommand, m.cfg.Mountpoint)
	cmd.Args[0] = process.Name
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), daemonEnv+"="+strconv.Itoa(os.Getpid()))
	cmd.Stdin = stdin
	if m.logs == nil {
		cmd.Stderr = os.Stderr
	}
	cmd.ExtraFiles = []*os.File{tell, m.root, hear, m.logs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	m.starting.Lock()
	// From now on: the daemon may end while its watcher begins, which would start
	// another one if it was not told that this is in order.
	m.setLastWord(say, 0)
	err = cmd.Start()
	tell.Close()
	hear.Close()
	if err != nil {
		m.setLastWord(nil, 0)
		m.starting.Unlock()
		say.Close()
		return fmt.Errorf("start a watcher: %w", err)
	}
	var told readyMessage
	switch err := json.NewDecoder(ready).Decode(&told); {
	case err != nil:
		told.Error = "it has ended without a word"
	case told.Error == "":
		m.setLastWord(say, cmd.Process.Pid)
		m.setMissing(nil)
	}
	m.starting.Unlock()
	_ = cmd.Wait() // how it ends makes no difference
	m.setLastWord(nil, 0)
	say.Close()
	if told.Error != "" {
		return errors.New(told.Error)
	}
	return nil
}

func (m *Minder) setLastWord(to *os.File, watcher int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastWord, m.watcher = to, watcher
	m.tellEnd()
}

// ends tells the watcher how the daemon ends, if that is not, or may not be, the one that
// started it, and so learns it from the kernel.
func (m *Minder) ends(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.untold = &readyMessage{}
	if err != nil {
		m.untold = &readyMessage{Error: err.Error(), Code: exitcode.Of(err), Passing: trouble.Passing(err)}
	}
	if m.tell != nil && m.life != nil { // who watches may be another one by now than who started it
		_ = json.NewEncoder(m.tell).Encode(m.untold)
	}
	m.tellEnd()
}

// tellEnd tells the watcher what it was not told yet. REQUIRES: mu held.
func (m *Minder) tellEnd() {
	if m.lastWord == nil || m.untold == nil {
		return
	}
	_ = json.NewEncoder(m.lastWord).Encode(m.untold) // it may have ended
	m.untold = nil
}

// logMeanwhile waits, and writes what is logged to its file itself: nobody else
// empties the pipe, and who logs would wait when that is full.
func (m *Minder) logMeanwhile(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if m.logs == nil {
		<-ctx.Done()
		return
	}
	out := mountlog.File(m.cfg)
	defer out.Close()
	for ctx.Err() == nil {
		if len(m.unwritten) == 0 {
			if m.unwritten = readLog(m.logs); len(m.unwritten) == 0 {
				continue
			}
		}
		n, err := out.Write(m.unwritten)
		m.unwritten = m.unwritten[n:]
		if err != nil { // no file can be opened, or the disk is full, which may pass
			retry := time.NewTimer(50 * time.Millisecond)
			select {
			case <-retry.C:
			case <-ctx.Done():
				retry.Stop()
			}
		}
	}
}

// readLog reads what there is of a log, and waits 50 ms for it at most.
func readLog(logs *os.File) []byte {
	p := []unix.PollFd{{Fd: int32(logs.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 50); err != nil || n == 0 {
		return nil
	}
	b := make([]byte, 1<<16)
	n, err := logs.Read(b)
	if err != nil {
		return nil
	}
	return b[:n]
}
