package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/process"
)

// The watcher can be killed while a daemon goes on with what another one has left. The
// keepers end with it. Had the daemon all that it needs out of them by then it goes on, and
// starts another watcher, as ever. Else it cannot, and nobody is there who would start one
// that begins anew: so this one starts a watcher, too, and ends when that is there.

const (
	// leftWithin is how long it takes at most from the end of the keepers of a watcher
	// until its own end is known, and mayHaveLeft the same if nothing tells of it.
	leftWithin  = 2 * time.Second
	mayHaveLeft = 100 * time.Millisecond
	// watchedWithin is how long another one may take to begin.
	watchedWithin = 20 * time.Second
)

// passOn is called when this daemon cannot go on with what was left, for err. If the watcher
// has ended it returns when there is another one. What it returns is told to that.
func (m *Minder) passOn(err error) error {
	limit := mayHaveLeft
	if errors.Is(err, estate.ErrGone) || errors.Is(err, unix.EPIPE) || errors.Is(err, errNoWatcher) {
		limit = leftWithin
	}
	select {
	case <-m.left:
	case <-time.After(limit):
		return err // the watcher hears of it, and begins anew
	}
	// In words: whatever it is, it is no reason not to begin anew.
	err = fmt.Errorf("it cannot go on with what the one before it has left: %s", err.Error())
	m.log.Error("the process that watches this daemon has ended while it took over: the next daemon begins anew, and the locks of this host are lost", "err", err)
	m.cutOffDying()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for late := time.After(watchedWithin); !m.isWatched(); {
		select {
		case <-look.C:
		case <-late:
			m.log.Error("no process could be started that would start another daemon: the mount stays dead until it is mounted anew", "mount", m.cfg.Mountpoint, "limit", watchedWithin)
			return err
		}
	}
	return err
}

// isWatched reports whether there is a watcher that this process has started.
func (m *Minder) isWatched() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastWord != nil && m.watcher != 0
}

// cutOffDying cuts the mount off if a daemon that was killed has it open and cannot end
// before somebody answers.
func (m *Minder) cutOffDying() {
	for _, w := range m.estate.Wills {
		if w.PID == os.Getpid() || !process.Dying(w.PID) {
			continue
		}
		if err := mountpoint.Abort(m.cfg.Mountpoint); err != nil {
			m.log.Error("the mount cannot be cut off", "err", err)
		}
		return
	}
}

// endsLate is how late does that, in tests; zero: as it should.
type endsLate struct {
	after time.Duration            // takeoverTime
	cut   func(point string) error // mountpoint.Abort
	exit  func(code int)           // os.Exit
}

// awaitsService calls late in time, unless stop is called before.
func (m *Minder) awaitsService(usable *atomic.Bool) (stop func() bool) {
	return time.AfterFunc(cmp.Or(m.endsLate.after, takeoverTime), func() { m.late(usable) }).Stop
}

// late ends this process if it does not come to serve the mount: with a watcher that would
// have done so.
func (m *Minder) late(usable *atomic.Bool) {
	if usable.Load() {
		return
	}
	cut, exit := mountpoint.Abort, os.Exit
	if m.endsLate.exit != nil {
		cut, exit = m.endsLate.cut, m.endsLate.exit
	}
	err := fmt.Errorf("it has not gone on within %v", takeoverTime)
	err = m.passOn(err)
	if usable.Load() { // just now
		return
	}
	if err := cut(m.cfg.Mountpoint); err != nil { // this process may hang, with it open
		m.log.Error("the mount cannot be cut off", "err", err)
	}
	m.ends(err)
	m.FlushLog()
	exit(exitcode.Failure)
}
