package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/chronicle"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/history"
	"github.com/dmxfs/dmxfs/internal/metrics"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/internal/rotation"
	"github.com/dmxfs/dmxfs/internal/rules"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/succession"
	"github.com/dmxfs/dmxfs/internal/supervise"
	"github.com/dmxfs/dmxfs/internal/version"
	"github.com/dmxfs/dmxfs/internal/writegate"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
	"github.com/dmxfs/dmxfs/policy"
)

// daemon is one mount and all that serves it. It is where the parts meet.
type daemon struct {
	cfg   config.Config
	log   *slog.Logger
	began time.Time

	root      *os.File // the shared directory, from before the mount
	writes    writegate.Gate
	state     *statedir.Dir
	journal   *history.History
	identity  p2p.Identity
	register  *register.Dir
	cluster   *register.Cluster // as it was when this daemon began
	clusterID string
	fileID    fileID
	folded    bool // the storage folds case, so that files cannot be told apart by path
	host      *p2p.Host
	transport *p2p.Transport
	messages  atomic.Uint64 // of locks: given to the transport, or come and not taken at once
	engine    *engine.Engine
	storage   fusefs.Storage
	params    member.Params
	// node and server are made while the parts above already run; nil before.
	node     atomic.Pointer[cluster.Node]
	server   atomic.Pointer[fusefs.Server]
	metrics  *metrics.Set
	page     metricsPage
	minder   *supervise.Minder
	secret   *rotation.Secret
	warnings []string // for who mounts

	// What it does, see assemble.
	chronicle *chronicle.Chronicle
	memory    *nodestate.Membership
	book      *addressBook
	rules     *rules.Rules
	table     *lockTable
	breaker   *breaker
	rotator   *rotation.Rotator
	admin     *orders
	recent    *recent.Memory // what this host has changed lately
	strays    *strays
	others    *others

	upgrader *succession.Upgrader
	left     *succession.Heir // what this daemon goes on with; nil: it began anew
	lostAll  atomic.Bool      // the others went on without this node

	takeover takeover // what this daemon leaves if it is killed, and has taken from one that was

	// joined is closed when this node may grant for the first time.
	joined     chan struct{}
	joinedOnce sync.Once
	// quit is closed when the mount has been taken away, but goes on elsewhere.
	quit     chan struct{}
	quitOnce sync.Once
}

// run joins the cluster, mounts, tells ready, and serves until the mount is
// gone or ctx ends.
func (d *daemon) run(ctx context.Context, ready func()) error {
	g, ctx := errgroup.WithContext(ctx)
	r, err := begin(ctx, d, func() error { return nil })
	if err != nil {
		return err
	}
	defer r.end()
	nodeDone, err := d.enter(ctx, r.nodeCtx)
	if err != nil {
		return err
	}
	l, err := admin.Listen(d.state.Path)
	if err != nil {
		return errors.Join(err, d.leave(nodeDone))
	}
	d.book.awaitRecord(ctx)
	if err := d.mount(); err != nil {
		l.Close()
		return errors.Join(err, d.leave(nodeDone))
	}
	return d.serveAll(ctx, g, l, nodeDone, r.netDone, func() {
		testator{d}.bequeath(l)
		ready()
		d.log.Info("mounted", "mount", d.cfg.Mountpoint, "source", d.cfg.Source)
	})
}

// serveAll serves the mount and the control socket until the mount is gone, or ctx
// ends, or the daemon has to end.
func (d *daemon) serveAll(ctx context.Context, g *errgroup.Group, l net.Listener, nodeDone, netDone chan error, ready func()) error {
	serveCtx, serveStop := context.WithCancel(ctx)
	defer serveStop()
	d.upgrader.Serves(l, ctx.Done())
	g.Go(func() error { return admin.Serve(serveCtx, l, d.handler(), d.log) })
	g.Go(func() error { d.table.logLongWaits(serveCtx, d.cfg.LogWaits, d.log); return nil })
	g.Go(func() error { onlooker{d}.serveMetrics(serveCtx, d.cfg.Metrics); return nil })
	g.Go(func() error { testator{d}.awaitLoss(serveCtx); return nil })
	g.Go(func() error { testator{d}.takeMemory(serveCtx); return nil })
	served := make(chan error, 1)
	go func() { served <- d.server.Load().Serve(context.WithoutCancel(ctx), d.engine) }()
	ready()

	err := d.serve(ctx, served, nodeDone, netDone)
	serveStop()
	if _, ok := errors.AsType[*dead](err); ok {
		return err // programs still use the mount: only the end of the process ends that
	}
	if errors.Is(err, errLeftBehind) {
		d.endLocks()
		return nil
	}
	d.unfinished(err, errors.Join(d.leave(nodeDone), g.Wait()))
	return err
}

// unmount ends the mount, upon which serve returns.
func (d *daemon) unmount(lazy bool) error {
	err := d.server.Load().Unmount(lazy)
	switch {
	case errors.Is(err, fusefs.ErrBusy):
		return exitcode.With(exitcode.Busy, err)
	case errors.Is(err, fusefs.ErrCopies):
		d.log.Warn("the daemon ends, and with it what is left of the mount", "err", err)
		d.quitOnce.Do(func() { close(d.quit) })
		return nil
	}
	return err
}

// serve waits for the end of the mount. When ctx ends it unmounts.
func (d *daemon) serve(ctx context.Context, served, nodeDone, netDone chan error) error {
	server := d.server.Load()
	select {
	case err := <-served:
		if server.CutOff(cutPatience) {
			d.endLocks()
			return &dead{errors.New("somebody has cut the connection of the mount to the kernel, as umount -f does while programs use it")}
		}
		d.log.Info("unmounted", "mount", d.cfg.Mountpoint)
		return err
	case err := <-nodeDone:
		nodeDone <- err
		if errors.Is(err, cluster.ErrStuck) {
			d.saveStacks()
			return &dead{err}
		}
		d.endLocks()
		return &dead{exitcode.With(endCode(err), fmt.Errorf("this node is no member of the cluster any more: %w", d.refused(err)))}
	case err := <-netDone:
		netDone <- nil
		d.endLocks()
		return &dead{fmt.Errorf("the network has failed: %w", err)}
	case <-d.quit:
	case <-ctx.Done():
	}
	if err := server.Unmount(false); err != nil {
		d.log.Warn("asked to end while programs use the mount: it is taken away from them", "err", err)
		d.endLocks()
		if err := server.Abort(); err != nil {
			d.log.Error("the mount could not be taken away from them before the process ends", "err", err)
		}
	}
	select {
	case err := <-served:
		return err
	case <-time.After(servedPatience):
		// A request hangs in the storage, or a copy of the mount in another
		// namespace cannot be cut off: the end of the process ends that.
		d.log.Error("the mount does not end: it is left behind, and the others go on when they have not heard of this node for a while")
		return errLeftBehind
	}
}

// join makes the membership, with the addresses that the host has now.
func (d *daemon) join() error {
	addrs, err := d.host.OwnAddrs()
	if err != nil {
		return fmt.Errorf("own addresses: %w", err)
	}
	self, err := d.self(addrs)
	if err != nil {
		return err
	}
	m, err := member.New(member.Config{
		Params: d.params, Cluster: d.clusterID, Self: self,
		Policy: d.rules.Wanted(),
		FileID: d.fileID.name, TakesPath: d.fileID.open,
		HasFence: d.cfg.FenceCommand != "",
		Former:   d.state.Lives(),
		Succeeds: d.left.Former(), SucceedsIn: d.left.LastView(), Heir: d.takeover.heir(),
		Restored: d.cfg.Restored,
		Random:   rand.Uint64,
		Made:     func() string { return time.Now().UTC().Format(time.RFC3339) },
	})
	if err != nil {
		return err
	}
	node := cluster.New(cluster.Options{
		Self: self.Peer, Cluster: d.clusterID, Machine: m, Params: d.params, Saved: d.memory.Load(),
		Transport: (*clusterTransport)(d),
		Storage:   (*storage)(d),
		Now:       boottime.Milliseconds,
		Fence:     (&fencer{d.cfg, d.root, d.log}).fence,
		Save:      d.memory.Save,
		Named:     d.state.AddLife,
		Claim:     testator{d}.claim(),
		Notice:    d.chronicle.Notice,
		Begin: func(v *member.View) {
			d.memory.KeepView(v)
			d.rules.Begin(v)
			d.strays.begin(v)
		},
		Installed: func(*member.View) { d.metrics.Installed(time.Now()) },
		Static:    d.book.list,
		Log:       d.log,
	})
	node.Bind((*boundEngine)(d))
	d.node.Store(node)
	return nil
}

// self is what the others need to know of this node.
func (d *daemon) self(addrs []ma.Multiaddr) (member.Member, error) {
	host, err := os.Hostname()
	if err != nil {
		return member.Member{}, fmt.Errorf("host name: %w", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return member.Member{}, fmt.Errorf("boot ID: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(d.state.Lock.Fd()), &st); err != nil {
		return member.Member{}, fmt.Errorf("lock file: %w", err)
	}
	m := member.Member{
		Node: member.Node{Peer: d.identity.ID().String()},
		Host: host, Version: version.String(), Boot: strings.TrimSpace(string(boot)),
		Lock:  member.LockFile{Dev: uint64(st.Dev), Ino: st.Ino},
		Cache: d.storage.ListingAge.Milliseconds(),
	}
	for _, a := range addrs {
		if len(m.Addrs) < member.MaxAddrs {
			m.Addrs = append(m.Addrs, a.String())
		}
	}
	return m, nil
}

// reachTime is how long a first start goes on when members answer on the
// storage that it can't reach: a connection takes its time on a busy host.
const reachTime = 10 * time.Second

// enter joins the cluster with a membership that runs until nodeCtx ends or
// its end comes out of done.
func (d *daemon) enter(ctx, nodeCtx context.Context) (done chan error, err error) {
	for {
		if err := d.join(); err != nil {
			return nil, err
		}
		done = make(chan error, 1)
		go func() { done <- d.node.Load().Run(nodeCtx) }()
		err = d.awaitJoin(ctx, done)
		if e, ok := errors.AsType[*cluster.Ended](err); !ok || e.Code != member.EndUnreachable || time.Since(d.began) > reachTime {
			return done, err
		}
		d.log.Warn("members cannot be reached yet: trying again", "err", err)
	}
}

// awaitJoin returns when this node may grant locks, and tells why it takes
// long.
func (d *daemon) awaitJoin(ctx context.Context, nodeDone chan error) error {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-d.joined:
			return nil
		case err := <-nodeDone:
			nodeDone <- err
			return exitcode.With(endCode(err), d.refused(err))
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), d.leave(nodeDone))
		case <-tick.C:
			d.log.Info("waiting to join the cluster", "why", d.node.Load().Status().Why)
		}
	}
}

// mount puts the file system in its place.
func (d *daemon) mount() error {
	opts, err := fusefs.ParseMountOptions(d.cfg.MountOptions)
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	o := d.mountOptions(d.node.Load().Status().View)
	o.MountPoint, o.Replace, o.Source, o.Mount = d.cfg.Mountpoint, d.cfg.Replace, d.cfg.Source, opts
	server, err := fusefs.New(o)
	if err != nil {
		return err
	}
	d.server.Store(server)
	return nil
}

// places are how many goroutines run at a time, at least: two that read requests, which keep
// one place each while they wait for the next; one for all that comes from other hosts, where
// these leave it none; and some for those that wait for the storage. (One that is idle costs a
// wake-up of another thread whenever a goroutine has something for another one to do.)
var places = map[fusefs.Load]int{fusefs.UsualLoad: 2, fusefs.Crowd: 3, fusefs.Parallel: 8}

// mountOptions are those of a mount, new or not, in a cluster whose view is v.
func (d *daemon) mountOptions(v *member.View) fusefs.Options {
	processors := process.NewProcessors(places[fusefs.UsualLoad])
	return fusefs.Options{
		Root: d.root, Writes: &d.writes, FileIDs: d.fileID.in(v),
		Rule:         d.rules.For,
		Movable:      d.rules.Movable,
		LateWrite:    d.chronicle.LateWrite,
		Observe:      d.metrics.Request,
		Messages:     d.messages.Load,
		Load:         func(l fusefs.Load) { processors.AtLeast(places[l]) },
		LockedBelow:  d.table.lockedBelow,
		Hold:         d.cfg.HoldOption(),
		CacheTime:    d.cfg.CacheTime,
		WriteThrough: true,
		Ledger:       d.takeover.own.MountLedger(),
		Recent:       d.recent,
		Others:       d.others.ask,
		FoldsNames:   d.folded,
		Log:          d.log,
	}
}

// live reports whether this node may grant a lock, or begin I/O under one.
func (d *daemon) live(guard time.Duration) bool {
	n := d.node.Load()
	return n != nil && n.Live(guard)
}

// refused adds to the end of a membership what is different in the policies, or
// what to do about a copied identity, if that was the reason.
func (d *daemon) refused(err error) error {
	e, ok := errors.AsType[*cluster.Ended](err)
	if ok && e.Code == member.EndTwin {
		return fmt.Errorf("%w; mount with a state directory of its own (--state), or, if this host is to keep %s, remove %s first, and it becomes another node",
			err, d.state.Path, d.state.File("identity.key"))
	}
	if ok && e.Code == member.EndFileID && d.folded {
		return fmt.Errorf("%w%s", err, foldedText)
	}
	v := d.node.Load().Status().View
	if !ok || e.Code != member.EndPolicy || v == nil {
		return err
	}
	theirs, bad := policy.Parse("the policy of the cluster", v.Policy.TOML)
	if bad != nil {
		return fmt.Errorf("%w (%w)", err, bad)
	}
	lines := d.rules.Difference(theirs)
	return fmt.Errorf("%w\n  %s", err, strings.Join(lines, "\n  "))
}
