package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/process"
)

// With a takeover the process that goes on next is there before it is needed: it has begun,
// has read its configuration, and waits until it is told what was left. So programs do not
// wait until a process has started. It is one of the program and the configuration of the
// watcher, as any that is started, and uses nothing of the mount.
//
// It has open what the watcher has, too, and knows the will: if the watcher ends before that
// has told it that it is its turn, it watches in its place, what is left lives on, and the
// daemon does not notice. Whether that is dead as well makes no difference. A watcher that has
// no use for it any more kills it.

// WaitsEnv says that a process is to wait for its turn.
const WaitsEnv = "DMXFS_WAITS"

// turnFD is where such a process is told that it is its turn, beside readyFD and so on; the
// others are for a [watchLeft].
const (
	turnFD     = 8
	holdLifeFD = 9
	wordsFD    = 10 // the last word of the daemon
	logsFD     = 11 // its log; none if it has no pipe
	holdFD     = 12 // the other end of its leash
)

const (
	// prepareAfter is how long after a daemon has begun to serve the next one is made ready:
	// programs that have waited go first. prepareAgain is the same after one that has died.
	prepareAfter = 50 * time.Millisecond
	prepareAgain = 5 * time.Second
)

// next is who goes on next.
type next struct {
	*watcher // set before it is used

	mu      sync.Mutex
	of      *charge   // whose place it takes
	waits   *launched // nil: there is none
	timer   *time.Timer
	failing bool // none could be started
	closed  bool
}

// start starts a process that serves the mount; if that is to go on with what was left, and
// one waits for that, it is that one.
func (n *next) start(cfg config.Config) (*launched, error) {
	left, life, err := n.legacy.gives(cfg)
	if err != nil {
		return nil, err
	}
	if left == nil {
		n.end() // what it has of the watcher may not be what the next one needs
	} else if x := n.take(left); x != nil {
		return x, nil
	}
	in, err := marshal(cfg, left)
	if err != nil {
		return nil, err
	}
	return n.launch(cfg, in, life, nil)
}

// standsInFor says which daemon the watcher has.
func (n *next) standsInFor(c *charge) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of = c
}

// take tells the one that waits what it goes on with; nil: there is none.
func (n *next) take(left []byte) *launched {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.waits
	n.unschedule()
	if x == nil {
		return nil
	}
	n.waits = nil
	// It is empty, and takes that at once. Who has begun to read it reads all of it.
	_, err := x.turn.Write(left)
	if err == nil {
		err = x.turn.Close()
	}
	if err != nil { // it has just ended
		x.discard()
		return nil
	}
	return x
}

// prepare has somebody wait soon, if nobody does.
func (n *next) prepare() { n.prepareIn(prepareAfter) }

func (n *next) prepareIn(d time.Duration) {
	if n.watcher == nil || !n.cfg.Takeover || !n.cfg.Restart {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unschedule(); !n.closed && n.waits == nil {
		n.timer = time.AfterFunc(d, n.ready)
	}
}

// unschedule: REQUIRES mu held.
func (n *next) unschedule() {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
}

// ready starts who waits.
func (n *next) ready() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer == nil || n.waits != nil || n.closed {
		return
	}
	n.timer = nil
	x, err := n.launchWaiting()
	if err != nil {
		if !n.failing {
			n.log.Warn("no process is ready to go on if the daemon is killed: it would be started then, which takes longer; it is tried again all the time", "err", err, "after", prepareAgain)
		}
		n.failing = true
		n.timer = time.AfterFunc(prepareAgain, n.ready)
		return
	}
	n.waits, n.failing = x, false
	go func() {
		if err := x.wait(); n.forget(x) {
			n.log.Warn("the process that was ready to go on if the daemon is killed has ended: another one is started", "end", fmt.Sprint(err), "after", prepareAgain)
			n.prepareIn(prepareAgain)
		}
	}()
}

// launchWaiting starts who waits. REQUIRES: mu held.
func (n *next) launchWaiting() (*launched, error) {
	_, life, err := n.legacy.gives(n.cfg)
	if err != nil {
		return nil, err
	}
	c := n.of
	l := watchLeft{
		Config: n.cfg, Daemon: c.process.Pid, Started: c.started, Estate: n.legacy.wills(),
		OwnSession: n.preference.session,
		Root:       rootFD, Life: lifeFD, HoldLife: holdLifeFD, LastWord: wordsFD, Hold: holdFD,
	}
	_, l.Front = n.out.(*os.File)
	if c.logs != nil {
		l.Logs = logsFD
	}
	left, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	in, err := marshal(n.cfg, left)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	defer func() { closeAll(files) }()
	for _, f := range []*os.File{n.legacy.hold, c.lastWord, c.logs, c.hold} {
		if f == nil {
			files = append(files, nil)
			continue
		}
		fd, err := process.Duplicate(f) // what is given to a process blocks from then on, but not as a copy
		if err != nil {
			return nil, err
		}
		files = append(files, os.NewFile(uintptr(fd), f.Name()))
	}
	return n.launch(n.cfg, in, life, files)
}

// forget reports whether x has waited still. It has ended.
func (n *next) forget(x *launched) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waits != x {
		return false
	}
	n.waits = nil
	x.discard()
	return true
}

// end ends the one that waits.
func (n *next) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unschedule()
	if x := n.waits; x != nil {
		n.waits = nil
		x.discard()
	}
}

// close is end, for good.
func (n *next) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.end()
}

// discard ends a process that has waited.
func (x *launched) discard() {
	_ = x.process.Kill() // it may have ended
	_ = x.wait()
	x.close()
	x.lastWord.Close()
}

// isToWait reports whether this process is to wait for its turn.
func isToWait() bool {
	_, yes := os.LookupEnv(WaitsEnv)
	return yes
}

// UntilAsked is a context that ends when this process is asked to end, by SIGINT or SIGTERM.
// One that waits for its turn is not asked, but ended, in which the next one in its place sees
// that it has done nothing: from the beginning, since one that stopped to listen later could
// have heard a signal and not know of it yet.
func UntilAsked(ctx context.Context) context.Context {
	if isToWait() {
		return ctx
	}
	return heedSignals(ctx)
}

// heedSignals is until the end of the process: a daemon that is asked to end is asked more
// than once.
func heedSignals(ctx context.Context) context.Context {
	ctx, _ = signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	return ctx
}

// awaitTurn has a process wait that is to go on with what another one leaves, and returns that when
// its turn has come, or nil when the watcher has ended before. What awaitTurn returns ends with
// SIGTERM and SIGINT.
func awaitTurn(ctx context.Context) (context.Context, *estate.Estate, error) {
	os.Unsetenv(WaitsEnv)
	unix.CloseOnExec(turnFD)
	turn := os.NewFile(turnFD, "turn")
	defer turn.Close()
	debug.FreeOSMemory()
	e := &estate.Estate{}
	switch err := json.NewDecoder(turn).Decode(e); {
	case errors.Is(err, io.EOF):
		e = nil
	case err != nil:
		return ctx, nil, fmt.Errorf("what the daemon that was killed has left: %w", err)
	}
	process.TakeName()
	return heedSignals(ctx), e, nil
}

// standIn watches in the place of the watcher that has started this process, and has ended.
func standIn(ctx context.Context, l *watchLeft, stderr io.Writer) error {
	process.CloseOnExec()
	w, err := l.watcher(stderr)
	if err != nil {
		return err
	}
	w.log.Warn("the process that watches the daemon has ended: this one does so in its place", "daemon", l.Daemon)
	return w.watch(ctx)
}
