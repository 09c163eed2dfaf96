package succession

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/relay"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Heir is what the program before this one has left in this process. Most methods do with
// a nil one: then it has left nothing.
type Heir struct {
	Heirloom
	Parts *relay.Parts // the mount and the locks; nil when they are taken over
	fd    int          // of the memory that it came in
	sock  *os.File
	why   string // this is the former program again: why the next one could not go on
	State *statedir.Dir
	view  *member.View // that Heirloom.View is
	gc    int          // see debug.SetGCPercent
	says  *slog.Logger
	flush func()       // writes out the log
	ends  func() error // see EndBy
}

// Take reads what was left, once. If that is of no use the former program goes on, and
// this does not return.
func Take() (*Heir, error) {
	var fd, former int
	_, err := fmt.Sscanf(os.Getenv(leftEnv), "%d %d", &fd, &former)
	h := &Heir{fd: fd, why: os.Getenv(WhyEnv)}
	os.Unsetenv(leftEnv)
	os.Unsetenv(WhyEnv)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, fmt.Errorf("%s: %w", leftEnv, err))
	}
	if h.Parts, err = relay.Get(fd); err == nil {
		err = json.Unmarshal(h.Parts.Head, &h.Heirloom)
	}
	if err != nil {
		err = fmt.Errorf("what the program before this one has left: %w", err)
		if h.why == "" { // all descriptors are still as they were left
			err = errors.Join(err, execute(former, fmt.Sprintf("%d %d", fd, former), err.Error()))
		}
		return nil, err
	}
	process.CloseOnExec()
	h.Mark("started")
	h.sock = os.NewFile(uintptr(h.Control), admin.SocketName)
	h.State = &statedir.Dir{Path: h.Config.State, Lock: os.NewFile(uintptr(h.Lock), "lock")}
	h.Config.Restored, h.Config.Replace = false, false // that was then
	// What is taken over is needed, and to look for garbage meanwhile takes time.
	h.gc = debug.SetGCPercent(-1)
	return h, nil
}

// goOnTime is for how long the former program tries to go on after the next one could
// not, and retryFirst and retryLast how long it waits between two attempts.
const (
	goOnTime              = 30 * time.Second
	retryFirst, retryLast = 50 * time.Millisecond, time.Second
)

// Back has the former program go on where it was, since this one cannot: nothing has
// changed so far. If this one is that already it begins anew in a moment: what it met
// may pass, as a port that another process has, or storage that does not answer. It
// returns only if that fails, too, or the time is over; then the mount is dead.
func (h *Heir) Back(ctx context.Context, why error) error {
	if h == nil {
		return why
	}
	first := h.why
	if first == "" {
		first = why.Error()
	} else {
		age := time.Duration(boottime.Milliseconds()-h.Began) * time.Millisecond
		if age > goOnTime || ctx.Err() != nil {
			return why
		}
		if h.says != nil {
			h.says.Error("this program cannot go on yet: it tries again", "err", why)
		}
		select {
		case <-time.After(min(max(age/4, retryFirst), retryLast)):
		case <-ctx.Done():
			return why
		}
	}
	if h.flush != nil {
		h.flush()
	}
	var err error
	if h.ends != nil {
		err = h.ends()
	}
	err = errors.Join(err, become(h.Program, h.Files, h.fd, h.Program, first))
	return fmt.Errorf("%w; and the former program cannot go on either: %w", why, err)
}

// Collect has garbage be looked for again: all is taken over.
func (h *Heir) Collect() { debug.SetGCPercent(h.gc) }

// LogBy says where the program that goes on logs; flush writes that out.
func (h *Heir) LogBy(log *slog.Logger, flush func()) { h.says, h.flush = log, flush }

// EndBy says how a keeper of this program ends, which would outlive it in the program that
// goes on: nobody would know of it, and the mount and the state directory stay in use.
func (h *Heir) EndBy(end func() error) { h.ends = end }

// Former is the former self of this node, which it succeeds.
func (h *Heir) Former() (n member.Node) {
	if h != nil {
		n = h.Self
	}
	return n
}

// ParseView reads the view that it was in, which is of this cluster; [Heir.LastView] has it then.
func (h *Heir) ParseView(cluster string) (v *member.View, err error) {
	if h.view, err = member.ParseView(h.View, cluster); err != nil {
		return nil, fmt.Errorf("the view of the cluster: %w", err)
	}
	return h.view, nil
}

// LastView is the view that it was in; nil before [Heir.ParseView].
func (h *Heir) LastView() *member.View {
	if h == nil {
		return nil
	}
	return h.view
}

// Listened is where the former program listened.
func (h *Heir) Listened() (list []ma.Multiaddr) {
	if h == nil {
		return nil
	}
	for _, s := range h.Listen {
		if a, err := ma.NewMultiaddr(s); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// Listener is the control socket.
func (h *Heir) Listener() (net.Listener, error) {
	l, err := net.FileListener(h.sock)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l, nil
}

// Mark notes how long after the begin of the pause something was done.
func (h *Heir) Mark(what string) {
	if h.Ready == nil {
		h.Ready = map[string]int{}
	}
	h.Ready[what] = int(boottime.Milliseconds() - h.Began)
}

// logTimes logs what was marked.
func (h *Heir) logTimes(log *slog.Logger) {
	args := []any{}
	for what, ms := range h.Ready {
		args = append(args, what+"_ms", ms)
	}
	log.Info("times since the begin of the pause", args...)
}
