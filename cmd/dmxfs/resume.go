package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/relay"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/supervise"
	"github.com/dmxfs/dmxfs/internal/version"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// heir is what the program before this one has left in this process.
type heir struct {
	heirloom
	parts *relay.Parts
	fd    int // of the memory that it came in
	sock  *os.File
	why   string // this is the former program again: why the next one could not go on
	state *statedir.Dir
	view  *member.View // that heirloom.View is
	gc    int          // see debug.SetGCPercent
	says  *slog.Logger
	flush func() // writes out the log
}

// resumeServe serves a mount that another program has served in this process.
func resumeServe(ctx context.Context, stderr io.Writer) error {
	supervise.Prepare()
	left, err := takeLeft()
	if err != nil {
		return err
	}
	// What is taken over is needed, and to look for garbage meanwhile takes time.
	left.gc = debug.SetGCPercent(-1)
	cfg := left.Config
	m, err := left.Minder.Minder(cfg)
	if err != nil {
		return left.back(ctx, err)
	}
	m.Hold() // the program that goes on if this one cannot would not know of it
	return supervise.GoOn(ctx, cfg, m, os.NewFile(uintptr(left.Root), cfg.Source), stderr, left.serve)
}

// takeLeft reads what was left. If that is of no use the former program goes on, and
// this does not return.
func takeLeft() (*heir, error) {
	var fd, former int
	_, err := fmt.Sscanf(os.Getenv(leftEnv), "%d %d", &fd, &former)
	h := &heir{fd: fd, why: os.Getenv(whyEnv)}
	os.Unsetenv(leftEnv)
	os.Unsetenv(whyEnv)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, fmt.Errorf("%s: %w", leftEnv, err))
	}
	if h.parts, err = relay.Get(fd); err == nil {
		err = json.Unmarshal(h.parts.Head, &h.heirloom)
	}
	if err != nil {
		err = fmt.Errorf("what the program before this one has left: %w", err)
		if h.why == "" { // all descriptors are still as they were left
			err = errors.Join(err, execute(former, fmt.Sprintf("%d %d", fd, former), err.Error()))
		}
		return nil, err
	}
	process.CloseOnExec()
	h.mark("started")
	h.sock = os.NewFile(uintptr(h.Control), admin.SocketName)
	h.state = &statedir.Dir{Path: h.Config.State, Lock: os.NewFile(uintptr(h.Lock), "lock")}
	h.Config.Restored, h.Config.Replace = false, false // that was then
	return h, nil
}

// goOnTime is for how long the former program tries to go on after the next one could
// not, and retryFirst and retryLast how long it waits between two attempts.
const (
	goOnTime              = 30 * time.Second
	retryFirst, retryLast = 50 * time.Millisecond, time.Second
)

// back has the former program go on where it was, since this one cannot: nothing has
// changed so far. If this one is that already it begins anew in a moment: what it met
// may pass, as a port that another process has, or storage that does not answer. It
// returns only if that fails, too, or the time is over; then the mount is dead.
func (h *heir) back(ctx context.Context, why error) error {
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
	err := become(h.Program, h.Files, h.fd, h.Program, first)
	return fmt.Errorf("%w; and the former program cannot go on either: %w", why, err)
}

// serve is a supervise.Daemon that goes on with what was left.
func (h *heir) serve(ctx context.Context, cfg config.Config, m *supervise.Minder, root *os.File, log *slog.Logger, ready func(warnings []string)) error {
	h.says, h.flush = log, m.FlushLog
	return serve(ctx, cfg, m, root, log, h, ready)
}

// self is the former self of this node, which it succeeds.
func (h *heir) self() (n member.Node) {
	if h != nil {
		n = h.Self
	}
	return n
}

// lastView is the view that it was in.
func (h *heir) lastView() *member.View {
	if h == nil {
		return nil
	}
	return h.view
}

// listened is where the former program listened.
func (h *heir) listened() (list []ma.Multiaddr) {
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

// successor is a daemon that goes on with what the program before it has left.
type successor struct{ *daemon }

// run is daemon.run with that: the mount, the locks, and a place in the cluster.
func (d successor) run(ctx context.Context, ready func()) error {
	g, ctx := errgroup.WithContext(ctx)
	v, err := member.ParseView(d.left.View, d.clusterID)
	if err != nil {
		return d.left.back(ctx, fmt.Errorf("the view of the cluster: %w", err))
	}
	d.left.view = v
	d.left.mark("opened")
	d.find(v)
	r, err := begin(ctx, d.daemon, func() error { return d.inherit(v) })
	if err != nil {
		return d.left.back(ctx, err)
	}
	defer r.end()
	l, err := net.FileListener(d.left.sock)
	if err != nil {
		return d.left.back(ctx, fmt.Errorf("control socket: %w", err))
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	d.awaitConnections()
	if err := d.join(); err != nil {
		return d.left.back(ctx, err)
	}
	// From here on there is no way back: the others hear of this program.
	d.minder.Release()
	d.recordResumed()
	nodeDone := make(chan error, 1)
	go func() { nodeDone <- d.node.Load().Run(r.nodeCtx) }()
	go d.upgrader.await(ctx)
	d.left.mark("serves")
	return d.serveAll(ctx, g, l, nodeDone, r.netDone, func() {
		debug.SetGCPercent(d.left.gc)
		ready()
		d.log.Info("goes on with the mount that the program before this one has served", "mount", d.cfg.Mountpoint, "version", version.String(), "former", d.left.Version)
	})
}

// inheritTrouble is why a program of a test cannot go on; else nil.
var inheritTrouble func() error

// inherit takes the locks and the mount. With an error nothing has changed.
func (d successor) inherit(v *member.View) error {
	d.rules.Begin(v) // Rule answers as it did
	locks := make(chan error, 1)
	go func() { locks <- d.engine.TakeOver(d.left.parts.Locks) }()
	server, err := fusefs.Resume(d.mountOptions(v), d.left.parts.Mount, func(fd int) int {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return -1
		}
		return fd
	})
	if err := errors.Join(err, <-locks); err != nil {
		return err
	}
	if inheritTrouble != nil {
		if err := inheritTrouble(); err != nil {
			return err
		}
	}
	d.left.parts = nil
	d.server.Store(server)
	d.left.mark("inherited")
	return nil
}

// find has the network look for the members of v that were connected.
func (d successor) find(v *member.View) {
	var wanted []peer.AddrInfo
	for i := range v.Members {
		if m := &v.Members[i]; slices.Contains(d.left.Peers, m.Peer) {
			if info, err := addrInfo(member.Contact{Peer: m.Peer, Addrs: m.Addrs}); err == nil {
				wanted = append(wanted, info)
			}
		}
	}
	d.transport.SetWanted(wanted)
	d.host.SetOnline(true)
}

// reconnectTime is how long the membership waits for connections to the members that
// the former program had: without, they would hear of this one at their next look.
const reconnectTime = 250 * time.Millisecond

// awaitConnections waits until those are found.
func (d successor) awaitConnections() {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for limit := time.After(reconnectTime); len(missing(d.transport.Peers())) > 0; {
		select {
		case <-look.C:
		case <-limit:
			d.log.Info("not all members are connected again yet", "missing", missing(d.transport.Peers()))
			return
		}
	}
	d.left.mark("connected")
}

// recordResumed has the journal say what goes on.
func (d successor) recordResumed() {
	for _, r := range d.engine.Resumed() {
		d.journal.Append(journal.Record{Event: journal.Resumed, Request: r, Reason: "another program serves the mount: it goes on"})
	}
}

// mark notes how long after the begin of the pause something was done.
func (h *heir) mark(what string) {
	if h.Ready == nil {
		h.Ready = map[string]int{}
	}
	h.Ready[what] = int(boottime.Milliseconds() - h.Began)
}

func (h *heir) log(log *slog.Logger) {
	args := []any{}
	for what, ms := range h.Ready {
		args = append(args, what+"_ms", ms)
	}
	log.Info("times since the begin of the pause", args...)
}
