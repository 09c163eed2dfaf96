package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/process"
)

// With a takeover the next daemon goes on with what one that was killed has left. The
// keeper of that has the mount's connection open: until a daemon serves it again, or the
// keeper is ended, whoever looks at the mount waits. So the watcher looks at it only when
// it has ended all keepers.

// legacy is what the daemon leaves if it is killed, as far as it has said so.
type legacy struct {
	mu      sync.Mutex
	estate  estate.Estate
	goesOn  bool      // the next daemon takes it, or the one that runs does
	inForce time.Time // since when all that counts is of the daemon that runs; zero: not yet
	// Takeovers in a row that came to nothing, or to a daemon that died soon.
	killed, crashed int
	// The same that came to nothing, since unserved: programs have waited since then.
	tries    int
	unserved time.Time

	// stuck are daemons that were killed, which live until another one has answered what they
	// hang in, or the mount is cut off. One that has said it goes on may not have done so yet.
	stuck []int
	cut   func(point string) error // nil: mountpoint.Abort, but in tests

	life, hold *os.File // the ends of a pipe: keepers end with hold
	copies     sync.WaitGroup
}

const (
	// shortLife is how long a daemon has to serve so that what it has taken over is not
	// suspected to have crashed it, and maxQuick how many may crash sooner in a row.
	shortLife = 2 * time.Second
	maxQuick  = 3
	// The same for SIGKILL, which comes from outside, or from a kernel that is out of
	// memory, for whatever reason.
	shortLifeKilled = 300 * time.Millisecond
	maxQuickKilled  = 20
	// maxTries is how many daemons in a row may be killed before they have gone on, or more, if
	// programs have not waited for longer than triesTime, or for a tenure, in which the other
	// hosts wait as well and nothing is lost yet. Where a limit of memory has ended the first
	// of them it ends the next ones as well: they need what that had left beside their own.
	maxTries  = 5
	triesTime = 5 * time.Second
	// takeoverTime is how long a takeover may take. Programs wait meanwhile.
	takeoverTime = 30 * time.Second
	// lastCalls is how long a daemon that was killed may take to end its last system calls.
	lastCalls = 20 * time.Second
	// lookEvery is how often it is looked whether a daemon with a will is dead, and cannot end
	// before another one goes on: programs wait meanwhile.
	lookEvery = 50 * time.Millisecond
	// lookSoon is the same when its first thread has ended, for as long as soon.
	lookSoon = 2 * time.Millisecond
	soon     = time.Second
	// lookAgain is after what time an error counts of looking at one that was killed: it is
	// being taken apart.
	lookAgain = time.Second
)

func (l *legacy) takes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.goesOn
}

// some reports whether there is anything that could be taken.
func (l *legacy) some() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.estate.Complete()
}

// gives is what a daemon that is started gets: an estate as JSON, if it is to take one,
// and what its keeper ends with.
func (l *legacy) gives(cfg config.Config) (left []byte, life *os.File, err error) {
	if !cfg.Takeover {
		return nil, nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life == nil {
		if l.life, l.hold, err = os.Pipe(); err != nil {
			return nil, nil, err
		}
	}
	if l.goesOn {
		left, err = json.Marshal(l.estate)
	}
	return left, l.life, err
}

// wills are those that count.
func (l *legacy) wills() estate.Estate {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.estate
}

// goOn is for another program in the process of the watcher.
func (l *legacy) goOn(e estate.Estate, life, hold *os.File) {
	l.estate, l.life, l.hold, l.inForce = e, life, hold, time.Now()
}

// ended reports whether a daemon that was killed does nothing any more. One that has not
// said yet what it leaves has told the kernel nothing, so that it ends by itself.
func (l *legacy) ended(pid int) (bool, error) {
	l.mu.Lock()
	w := l.estate.Newest()
	l.mu.Unlock()
	if w.PID != pid {
		return false, nil
	}
	return w.Ended()
}

// bequeathed takes the will of a daemon.
func (w *watcher) bequeathed(x estate.Will) {
	l := &w.legacy
	w.upgrading.Store(0) // if it has executed another program, that is what says it
	l.mu.Lock()
	over := l.estate.Add(x)
	if x.InForce {
		l.inForce, l.goesOn = time.Now(), false
	}
	l.mu.Unlock()
	if x.InForce {
		w.next.end() // who waits knows of another will
		w.next.prepare()
		w.preference.ends()
		w.calm(x.PID)
	}
	go func() { // which may take a while
		if err := estate.End(over); err != nil {
			w.log.Error("something is left of a daemon that was killed", "err", err)
		}
	}()
}

// mayTakeOver reports whether the next daemon is to go on with what the one before it has
// left, which has ended with err.
func (w *watcher) mayTakeOver(err error) bool {
	l := &w.legacy
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goesOn = false
	gone, ok := errors.AsType[*errGone](err)
	if !ok || !gone.crashed || !l.estate.Complete() {
		return false
	}
	short := shortLife
	if gone.killed {
		short = shortLifeKilled
		l.killed++
	} else {
		l.crashed++
	}
	l.tries++
	if !l.inForce.IsZero() {
		l.tries, l.unserved = 0, time.Now()
		l.estate.Died = boottime.Milliseconds()
		if time.Since(l.inForce) > short {
			l.killed, l.crashed = 0, 0
		}
	}
	if l.killed > maxQuickKilled || l.crashed > maxQuick {
		w.log.Error("the daemons that went on with the mount have died soon after, one after the other: perhaps of what they went on with. The next one begins anew, and the locks of this host are lost", "killed", l.killed, "crashed", l.crashed)
		return false
	}
	if waited := time.Since(l.unserved); l.tries > maxTries && waited > max(triesTime, w.cfg.Tenure) {
		w.log.Error("the daemons that were to go on with the mount were all ended before they could: perhaps memory is short, or limited (a cgroup). The next one begins anew, and the locks of this host are lost", "ended", l.tries, "waited", waited)
		return false
	}
	if l.inForce.IsZero() { // else the one that has ended had said who keeps what it had open
		l.endStrays(w.log)
	}
	l.inForce, l.goesOn = time.Time{}, true
	return true
}

// endStrays ends the keepers of daemons that were killed before they had said what they
// leave. They have the lock of the state directory open, at least. The caller holds l.mu.
func (l *legacy) endStrays(log *slog.Logger) {
	if l.life == nil {
		return
	}
	if err := estate.EndStrays(l.life, l.estate.Wills); err != nil {
		log.Error("something is left of a daemon that was killed", "err", err)
	}
}

// disinherit ends what a daemon that is dead has left: nobody goes on with it.
func (w *watcher) disinherit() {
	l := &w.legacy
	l.mu.Lock()
	over := l.estate.Wills
	stuck := l.stuck
	l.estate, l.goesOn, l.inForce, l.killed, l.crashed, l.stuck = estate.Estate{}, false, time.Time{}, 0, 0, nil
	l.endStrays(w.log)
	l.mu.Unlock()
	w.next.end()
	err := estate.End(over)
	if slices.ContainsFunc(stuck, process.Dying) {
		w.cutOff()
	}
	if err != nil {
		w.log.Error("something is left of a daemon that was killed", "err", err)
		return
	}
	copied := make(chan struct{})
	go func() { l.copies.Wait(); close(copied) }()
	select {
	case <-copied:
	case <-time.After(time.Second): // somebody else has the pipe of its log open, as a fence command
	}
}

// isStuck says that a daemon was killed, and has not ended.
func (l *legacy) isStuck(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuck = append(slices.DeleteFunc(l.stuck, func(p int) bool { return !process.Dying(p) }), pid)
}

// cutOff cuts the mount off, which a daemon has open that was killed and cannot end: nobody
// goes on with it, and whoever looked at the mount would wait for ever.
func (w *watcher) cutOff() {
	cut := w.legacy.cut
	if cut == nil {
		cut = mountpoint.Abort
	}
	w.log.Error("a daemon was killed and cannot end, and no other one goes on: its mount is cut off", "mount", w.cfg.Mountpoint)
	if err := cut(w.cfg.Mountpoint); err != nil {
		w.log.Error("the mount cannot be cut off", "err", err)
	}
}

// errStuck is how a daemon has ended that has not ended yet, and perhaps cannot before
// another one goes on.
type errStuck struct{ how unix.WaitStatus } // zero: it is not known

func (e *errStuck) Error() string {
	what := "it was killed"
	if e.how.Exited() && e.how != 0 {
		what = fmt.Sprintf("it has ended with %d", e.how.ExitStatus())
	} else if e.how.Signaled() && e.how.Signal() != unix.SIGKILL {
		what = "it was ended by a signal: " + e.how.Signal().String()
	}
	return what + ", and ends when another one goes on"
}

// killed reports whether that was by SIGKILL.
func (e *errStuck) killed() bool {
	return e.how == 0 || e.how.Signaled() && e.how.Signal() == unix.SIGKILL
}

// awaitEnd returns when a daemon has ended, which wait waits for, or, if there is something
// to be taken, can do nothing any more. takes: it goes on with what another one has left.
func (w *watcher) awaitEnd(p *os.Process, wait func() error, takes bool) error {
	exited := make(chan error, 1)
	go func() { exited <- wait() }()
	every := dyingEvery
	if w.cfg.Takeover {
		every = lookEvery
	}
	look := time.NewTicker(every)
	defer look.Stop()
	first := process.WatchFirstThread(p.Pid)
	defer first.Stop()
	firstEnded := first.Ended()
	var quiet, late <-chan time.Time
	if takes {
		late = time.After(takeoverTime)
	}
	var dying time.Time
	for {
		select {
		case err := <-exited:
			return err
		case <-firstEnded:
			firstEnded, quiet = nil, time.After(soon)
			w.preference.begins()
			look.Reset(min(every, lookSoon))
		case <-quiet:
			look.Reset(every)
		case <-late:
			if w.legacy.takes() {
				w.log.Error("the daemon has not gone on with what the one before it has left: it is ended, and the next one begins anew", "limit", takeoverTime)
				w.disinherit()
				_ = p.Kill()
			}
		case <-look.C:
			if w.mayLookDead() || !w.legacy.some() || !process.Dying(p.Pid) {
				dying = time.Time{}
				continue
			}
			if dying.IsZero() {
				dying = time.Now()
			}
			ended, err := w.legacy.ended(p.Pid)
			how, there := process.EndOf(p.Pid)
			if !there {
				continue // wait is about to return
			}
			// One that has ended with a reason of its own is not succeeded, see gone.
			if ended && (how == 0 || how.Signaled() || how.ExitStatus() == exitcode.Usage) {
				w.legacy.isStuck(p.Pid)
				return &errStuck{how}
			}
			if since := time.Since(dying); err != nil && since > lookAgain || since > lastCalls {
				w.log.Error("the daemon was killed and does not end: nobody can go on with what it has left", "process", p.Pid, "err", err)
				w.disinherit() // and then its mount is cut off
			}
		}
	}
}

// gone is how a daemon has ended of which awaitEnd has returned err, and with which code.
func gone(err error) (*errGone, int) {
	if e, ok := errors.AsType[*errStuck](err); ok {
		return &errGone{err.Error(), true, e.killed()}, exitcode.Failure
	}
	if errors.Is(err, errUnseen) {
		return &errGone{err.Error(), true, true}, exitcode.Failure
	}
	code, killed := exitcode.Failure, false
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		code = e.ExitCode()
		s, ok := e.Sys().(syscall.WaitStatus)
		killed = ok && s.Signaled() && s.Signal() == unix.SIGKILL
	}
	if code == exitcode.Usage { // the Go runtime ended it; what is wrong with options is told
		return &errGone{err.Error(), true, false}, exitcode.Failure
	}
	return &errGone{err.Error(), code < 0, killed}, code
}

// mayNotCut reports whether a mount is not to be cut off whose daemon looks dead.
func (w *watcher) mayNotCut() bool { return w.mayLookDead() || w.legacy.some() }

// first is the first message of a daemon that is not its will.
func (w *watcher) first(words *json.Decoder) (m readyMessage, told bool) {
	for {
		m = readyMessage{}
		if words.Decode(&m) != nil {
			return m, false
		}
		if m.Will == nil {
			return m, true
		}
		w.bequeathed(*m.Will)
	}
}

// hush has who hears the last word of a daemon that has ended hear all that it has said,
// and no more: a keeper may have the pipe open.
func (c *charge) hush(heard <-chan struct{}) {
	raw, err := c.lastWord.SyscallConn()
	if err != nil {
		return
	}
	wait := time.NewTicker(time.Millisecond)
	defer wait.Stop()
	for n := 1; n > 0; {
		if err := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
			break
		}
		if n > 0 {
			select {
			case <-heard:
				return
			case <-wait.C:
			}
		}
	}
	_ = c.lastWord.SetReadDeadline(time.Now()) // a pipe of this process can
	<-heard
}

// revoked: the daemon executes another program, and leaves nothing until that serves.
func (w *watcher) revoked() {
	l := &w.legacy
	l.mu.Lock()
	over := l.estate.Wills
	l.estate, l.goesOn = estate.Estate{}, false
	l.mu.Unlock()
	w.next.end()
	if err := estate.End(over); err != nil { // it should have ended it
		w.log.Error("something is left of what the daemon was before", "err", err)
	}
}

// takesOver reads what a daemon goes on with, from what the watcher has for it; nil: it begins
// anew.
func takesOver(words *json.Decoder) (*estate.Estate, error) {
	if !words.More() {
		return nil, nil
	}
	e := &estate.Estate{}
	if err := words.Decode(e); err != nil {
		return nil, fmt.Errorf("what the daemon that was killed has left: %w", err)
	}
	return e, nil
}

// Estate is what this daemon goes on with; nil: it begins anew.
func (m *Minder) Estate() *estate.Estate { return m.estate }

// Lifeline is what a keeper needs, see [estate.Begin]: it ends with the watcher.
func (m *Minder) Lifeline() (fd, watcher int, err error) {
	if m.life == nil {
		return 0, 0, errors.New("the process that watches this daemon did not start it")
	}
	fd = int(m.life.Fd())
	return fd, os.Getppid(), unix.SetNonblock(fd, false)
}

var errNoWatcher = errors.New("the process that has started this one has ended")

// heir is the way to who would start another daemon that goes on; nil if nobody would.
// REQUIRES: mu held.
func (m *Minder) heir() *os.File {
	to := m.tell
	if m.lastWord != nil { // of the one that started it, if that is another program by now
		to = m.lastWord
	}
	if m.life == nil || m.watcher != 0 || m.missing != nil {
		return nil
	}
	return to
}

// HasHeir reports whether this process can tell the watcher what it leaves, and so can
// another program in it.
func (m *Minder) HasHeir() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heir() != nil
}

// Bequeath tells the watcher what this process leaves if it is killed.
func (m *Minder) Bequeath(x estate.Will) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := m.heir()
	if to == nil {
		return errNoWatcher
	}
	return json.NewEncoder(to).Encode(readyMessage{Will: &x})
}
