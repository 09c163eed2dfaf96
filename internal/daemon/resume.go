package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/succession"
	"github.com/dmxfs/dmxfs/internal/supervise"
	"github.com/dmxfs/dmxfs/internal/version"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Resume is the process that goes on with a mount that another program has served in it, see
// [succession.Left]. It logs to stderr, as that did.
func Resume(ctx context.Context, stderr io.Writer) error {
	supervise.Prepare()
	left, err := succession.Take()
	if err != nil {
		return err
	}
	cfg := left.Config
	m, err := left.Minder.Minder(cfg)
	if err != nil {
		return left.Back(ctx, err)
	}
	m.Hold() // the program that goes on if this one cannot would not know of it
	return supervise.GoOn(ctx, cfg, m, os.NewFile(uintptr(left.Root), cfg.Source), stderr,
		func(ctx context.Context, cfg config.Config, m *supervise.Minder, root *os.File, log *slog.Logger, ready func(warnings []string)) error {
			left.LogBy(log, m.FlushLog)
			return serve(ctx, cfg, m, root, log, left, ready)
		})
}

// goer is a daemon that goes on with what another one has held.
type goer struct{ *daemon }

// successor is one that goes on with what the program before it has left.
type successor struct{ goer }

// run is daemon.run with that: the mount, the locks, and a place in the cluster.
func (d successor) run(ctx context.Context, ready func()) error {
	g, ctx := errgroup.WithContext(ctx)
	v, err := d.left.ParseView(d.clusterID)
	if err != nil {
		return d.left.Back(ctx, err)
	}
	d.left.Mark("opened")
	d.find(v, func(peer string) bool { return slices.Contains(d.left.Peers, peer) })
	r, err := begin(ctx, d.daemon, func() error { return d.inherit(v) })
	if err != nil {
		return d.left.Back(ctx, err)
	}
	defer r.end()
	l, err := d.left.Listener()
	if err != nil {
		return d.left.Back(ctx, err)
	}
	d.awaitConnections(ctx)
	d.left.Mark("connected")
	if err := d.join(); err != nil {
		return d.left.Back(ctx, err)
	}
	// From here on there is no way back: the others hear of this program. All that counts is
	// its own since it has inherited.
	d.minder.Release()
	testator{d.daemon}.bequeath(l)
	d.recordResumed("another program serves the mount")
	nodeDone := make(chan error, 1)
	go func() { nodeDone <- d.node.Load().Run(r.nodeCtx) }()
	d.left.Mark("serves")
	go d.upgrader.Await(ctx) // marks, too: from here on it alone does
	return d.serveAll(ctx, g, l, nodeDone, r.netDone, func() {
		d.left.Collect()
		ready()
		d.log.Info("goes on with the mount that the program before this one has served", "mount", d.cfg.Mountpoint, "version", version.String(), "former", d.left.Version)
	})
}

// InheritTrouble is for tests alone: why a program cannot go on; else nil.
var InheritTrouble func() error

// inherit takes the locks and the mount. With an error nothing has changed.
func (d successor) inherit(v *member.View) error {
	d.rules.Begin(v) // Rule answers as it did
	locks := make(chan error, 1)
	go func() { locks <- d.engine.Inherit(d.left.Parts.Locks) }()
	server, err := fusefs.Resume(d.mountOptions(v), d.left.Parts.Mount, func(fd int) int {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return -1
		}
		return fd
	})
	if err := errors.Join(err, <-locks); err != nil {
		return err
	}
	if InheritTrouble != nil {
		if err := InheritTrouble(); err != nil {
			return err
		}
	}
	d.left.Parts = nil
	d.server.Store(server)
	d.left.Mark("inherited")
	return nil
}

// find has the network look for the members of v that connected says of that they were.
func (d goer) find(v *member.View, connected func(peer string) bool) {
	var wanted []peer.AddrInfo
	for i := range v.Members {
		if m := &v.Members[i]; connected(m.Peer) {
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

// awaitConnections waits until those are found, or ctx ends.
func (d goer) awaitConnections(ctx context.Context) {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for limit := time.After(reconnectTime); len(missing(d.transport.Peers())) > 0; {
		select {
		case <-look.C:
		case <-limit:
			d.log.Info("not all members are connected again yet", "missing", missing(d.transport.Peers()))
			return
		case <-ctx.Done():
			return
		}
	}
}

// recordResumed has the journal say what goes on.
func (d goer) recordResumed(why string) {
	for _, r := range d.engine.Resumed() {
		d.journal.Append(journal.Record{Event: journal.Resumed, Request: r, Reason: why + ": it goes on"})
	}
}
