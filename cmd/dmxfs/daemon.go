package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"dmxfs/fusefs"
	"dmxfs/journal"
	"dmxfs/locks"
	"dmxfs/locks/engine"
	"dmxfs/p2p"
	"dmxfs/p2p/cluster"
	"dmxfs/p2p/member"
	"dmxfs/p2p/register"

	ma "github.com/multiformats/go-multiaddr"
)

// daemon is one mount and all that serves it. It is where the parts meet.
type daemon struct {
	cfg   Config
	log   *slog.Logger
	began time.Time

	root      *os.File // the shared directory, from before the mount
	state     *stateDir
	journal   *history
	identity  p2p.Identity
	register  *register.Dir
	clusterID string
	fileID    fileID
	folded    bool // the storage folds case, so that files cannot be told apart by path
	host      *p2p.Host
	transport *p2p.Transport
	engine    *engine.Engine
	storage   fusefs.Storage
	params    member.Params
	// node and server are made while the parts above already run; nil before.
	node     atomic.Pointer[cluster.Node]
	server   atomic.Pointer[fusefs.Server]
	contacts contacts
	rules    rules
	departed departed
	damages  damages
	minder   *minder
	secret   *clusterSecret
	rotating sync.Mutex // held by who changes the secret
	stored   bool       // the secret is on the storage
	warnings []string   // for who mounts
	marks    rootMarks

	// joined is closed when this node may grant for the first time.
	joined     chan struct{}
	joinedOnce sync.Once
	// online is closed when others may find this node for the first time.
	online     chan struct{}
	onlineOnce sync.Once

	// quit is closed when the mount has been taken away, but goes on elsewhere.
	quit     chan struct{}
	quitOnce sync.Once
}

// open takes everything that can fail before other nodes hear of this one. On
// error nothing is left behind.
// It takes root, the shared directory, also on error.
func open(cfg Config, root *os.File, log *slog.Logger) (d *daemon, err error) {
	d = &daemon{cfg: cfg, log: log, began: time.Now(), root: root, joined: make(chan struct{}), online: make(chan struct{}), quit: make(chan struct{})}
	defer func() {
		if err != nil {
			d.close()
			d = nil
		}
	}()
	if err = d.rules.askFor(cfg.Rules); err != nil {
		return d, err
	}
	if d.storage, err = fusefs.StorageOf(int(d.root.Fd())); err != nil {
		return d, err
	}
	if cfg.ListingAge >= 0 {
		d.storage.ListingAge = cfg.ListingAge
	}
	for _, w := range storageWarnings(d.storage, cfg.ListingAge >= 0) {
		log.Warn(w, "source", cfg.Source, "type", d.storage.Type)
	}
	if d.params, err = cfg.params(); err != nil {
		return d, withCode(exitUsage, err)
	}
	if d.state, err = openState(cfg.State, int(d.root.Fd())); err != nil {
		return d, err
	}
	if d.identity, err = p2p.LoadIdentity(d.state.path); err != nil {
		return d, err
	}
	id := d.identity.ID().String()
	d.register = register.NewDir(d.root, cfg.Source, id)
	var given []byte
	if cfg.Secret != "" {
		if given, err = register.ReadSecret(cfg.Secret); err != nil {
			return d, withCode(exitUsage, err)
		}
	}
	// Before anything is made there: a directory on which the storage is not
	// mounted looks like one that nobody shares yet.
	known, err := journal.ClusterOf(d.state.file("journal"))
	if err != nil {
		return d, fmt.Errorf("the state directory: %w", err)
	}
	kept, err := readKept(d.state.path)
	if err != nil {
		return d, err
	}
	if err := d.refuseFolded(); err != nil {
		return d, err
	}
	c, err := d.register.Init(register.Expect{Secret: given, Kept: kept.all(), Cluster: known, Join: cfg.Join})
	if errors.Is(err, register.ErrNoCluster) || errors.Is(err, register.ErrOtherCluster) {
		return d, err // it may be mounted yet
	}
	if err != nil {
		return d, withCode(storageCode(err), err)
	}
	if err := kept.refuseFormer(cfg.Source, c); err != nil && !cfg.Restored {
		return d, withCode(exitRefused, err)
	}
	d.warnings = c.Warnings
	if c.Founded {
		d.warnings = append(d.warnings, fmt.Sprintf("no cluster was in %s: this is the first host of a new one, %s. If other hosts have mounted it already, this host does not see the same storage, or saw it too late: "+
			"unmount here, mend that, and mount with --join, which never makes a cluster", cfg.Source, c.ID))
	}
	for _, w := range d.warnings {
		log.Warn(w)
	}
	d.clusterID = c.ID
	d.folded = fusefs.FoldsCase(int(d.root.Fd()))
	d.fileID = fileIDOf(cfg.FileID, d.storage, c.Inode, d.folded)
	secret, err := p2p.ParseSecret(c.Secret)
	if err != nil {
		return d, withCode(exitRefused, err)
	}
	d.secret = newClusterSecret(d.state.path, c, kept)
	if err := d.secret.keep(kept); err != nil {
		log.Warn("the secret is not kept: if .dmxfs is removed, this host cannot make it anew", "err", err)
	}
	d.stored = c.Stored
	if d.marks, err = marksOf(d.root); err != nil {
		return d, fmt.Errorf("the shared directory: %w", err)
	}
	d.journal, err = openHistory(d.state.file("journal"), journal.Options{
		Cluster: c.ID, Mount: cfg.Mountpoint, Node: locks.NodeID(id), Logger: log,
	}, cfg.Journal == journalRequired)
	if err != nil {
		return d, err
	}
	logRecovery(log, d.journal.Recovery())
	listen, err := multiaddrs(cfg.Listen)
	if err != nil {
		return d, withCode(exitUsage, fmt.Errorf("--listen: %w", err))
	}
	if err := d.contacts.static(cfg.Peers); err != nil {
		return d, withCode(exitUsage, fmt.Errorf("--peer: %w", err))
	}
	d.host, err = p2p.NewHost(p2p.Options{
		Identity: d.identity, Secret: secret, Listen: listen, Cluster: c.ID, MDNS: cfg.MDNS, Log: log,
		Offline: true,
	})
	if err != nil {
		return d, err
	}
	d.secret.bind(d.useSecrets)
	d.engine = engine.New(engine.Options{
		Transport: (*lockTransport)(d), Files: (*files)(d), Recorder: (*recorder)(d), Log: log,
		Algorithms: algorithms,
		Rule:       d.rules.algorithm,
		Uniform:    d.rules.uniform,
		Live:       d.live,
		MaxLocks:   cfg.MaxLocks,
		Damaged:    d.damaged,
		Guard:      time.Duration(d.params.Guard) * time.Millisecond,
	})
	d.transport = p2p.NewTransport(d.host, p2p.Handlers{
		Member: d.onMember,
		Lock:   func(from locks.NodeID, e locks.Epoch, frame []byte) { d.engine.Receive(from, e, frame) },
		Sync:   d.onSync,
		Ask:    d.onAsk,
	}, log)
	return d, nil
}

// useSecrets has the network take secrets, which are valid.
func (d *daemon) useSecrets(list [][]byte) {
	var parsed []p2p.Secret
	for _, b := range list {
		s, err := p2p.ParseSecret(b)
		if err != nil {
			d.log.Error("a secret cannot be used", "err", err) // a damaged file: it was checked before it got there
			continue
		}
		parsed = append(parsed, s)
	}
	if len(parsed) > 0 {
		d.host.SetSecrets(parsed[0], parsed[1:]...)
	}
}

// storageWarnings is what an admin should know of the storage; told: the age of
// its listings was given.
func storageWarnings(s fusefs.Storage, told bool) []string {
	var list []string
	if s.Soft {
		list = append(list, "the storage is mounted soft: writes are lost when the server is slow; mount it hard")
	}
	switch age := s.ListingAge; {
	case told || age == 0:
	case !s.Known:
		list = append(list, fmt.Sprintf("the storage is of a type that is not known: its listings are taken to be up to %v old (--listing-age), so a start without any other node takes %v", age, 3*age))
	default:
		list = append(list, fmt.Sprintf("listings of this storage may be up to %v old (--listing-age), so a start without any other node takes %v", age, 3*age))
	}
	return list
}

func multiaddrs(list []string) ([]ma.Multiaddr, error) {
	var out []ma.Multiaddr
	for _, s := range list {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not a multiaddr like /ip4/0.0.0.0/tcp/7654: %w", s, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// logRecovery tells what the last run left behind.
func logRecovery(log *slog.Logger, r journal.Recovery) {
	for _, l := range r.Lost {
		log.Warn("a lock that the last run of the daemon held is lost", "path", l.Path, "class", l.Key.Class.String(),
			"mode", l.Mode.String(), "pid", l.PID, "command", l.Command)
	}
	for _, x := range r.Damaged {
		log.Error("a part of the journal cannot be read", "part", x.String())
	}
}

// close gives back what open has taken.
func (d *daemon) close() error {
	var errs []error
	if d.journal != nil {
		errs = append(errs, d.journal.Close())
	}
	if d.state != nil {
		errs = append(errs, d.state.Close())
	}
	if d.root != nil {
		errs = append(errs, d.root.Close())
	}
	return errors.Join(errs...)
}

// run joins the cluster, mounts, tells ready, and serves until the mount is
// gone or ctx ends.
func (d *daemon) run(ctx context.Context, ready func()) error {
	g, ctx := errgroup.WithContext(ctx)
	// The network lives until the membership has ended in good order.
	netCtx, netStop := context.WithCancel(context.WithoutCancel(ctx))
	defer netStop()
	netDone, netEnded := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(netEnded)
		netDone <- d.transport.Run(netCtx)
	}()
	select {
	case <-d.host.Ready():
	case err := <-netDone:
		return fmt.Errorf("listen for other daemons: %w", err)
	}
	nodeCtx, nodeStop := context.WithCancel(context.WithoutCancel(ctx))
	defer nodeStop()
	engineCtx, engineStop := context.WithCancel(context.WithoutCancel(ctx))
	engineDone := make(chan struct{})
	go func() { defer close(engineDone); _ = d.engine.Run(engineCtx) }()
	bookCtx, bookStop := context.WithCancel(ctx)
	bookDone := make(chan struct{})
	go func() { defer close(bookDone); d.keepRecords(bookCtx) }()
	// These may hang in the storage, and have nothing to end.
	go d.followSecret(bookCtx)
	go d.followClones(bookCtx)
	defer func() {
		// Storage that hangs, or an engine that does, must not keep the
		// process from ending: the one that watches it starts another.
		end := func(what string, stop func(), done <-chan struct{}) {
			stop()
			select {
			case <-done:
			case <-time.After(stuckPatience):
				d.log.Error(what + " does not end: it is left behind")
			}
		}
		end("the reading of address records", bookStop, bookDone)
		end("the lock engine", engineStop, engineDone)
		nodeStop()
		end("the network", netStop, netEnded)
	}()

	nodeDone, err := d.enter(ctx, nodeCtx)
	if err != nil {
		return err
	}
	l, err := listenControl(d.state.path)
	if err != nil {
		return err
	}
	if err := d.mount(); err != nil {
		l.Close()
		return errors.Join(err, d.leave(nodeDone))
	}
	serveCtx, serveStop := context.WithCancel(ctx)
	defer serveStop()
	g.Go(func() error { return serveControl(serveCtx, l, d.handler(), d.log) })
	g.Go(func() error { d.logLongWaits(serveCtx, d.cfg.LogWaits); return nil })
	served := make(chan error, 1)
	go func() { served <- d.server.Load().Serve(context.WithoutCancel(ctx), d.engine) }()
	ready()
	d.log.Info("mounted", "mount", d.cfg.Mountpoint, "source", d.cfg.Source)

	err = d.serve(ctx, served, nodeDone, netDone)
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

// errLeftBehind ends a daemon whose mount is gone while a request of it still
// hangs. What that writes may reach the storage later: its locks must not be
// free as soon as those of a node that leaves.
var errLeftBehind = errors.New("a request hangs in the storage")

// unfinished logs what went wrong at the end. Where the mount has ended as
// wished, that is no reason to start another daemon.
func (d *daemon) unfinished(end, err error) {
	if err == nil {
		return
	}
	if end == nil {
		d.log.Error("the mount has ended, but not all is in order", "err", err)
		return
	}
	d.log.Error("not all is in order", "err", err)
}

// dead is why the daemon ends while its mount stays, dead, so that programs do
// not get at the shared directory without locks.
type dead struct{ error }

func (e *dead) Unwrap() error { return e.error }

// endCode is the exit number for the end of a membership: whether it makes
// sense to try again.
func endCode(err error) int {
	if e, ok := errors.AsType[*cluster.Ended](err); ok && e.Code != member.EndLost {
		return exitRefused
	}
	return exitFailure
}

// stuckPatience is how long the end of a part may take that should take no
// time at all.
const stuckPatience = 5 * time.Second

// servedPatience is how long requests of programs that are under way may take
// when the mount is gone.
const servedPatience = 15 * time.Second

// saveStacks writes down what all goroutines hang in, for who has to find out
// why the engine did not turn.
func (d *daemon) saveStacks() {
	path := d.state.file("stuck.txt")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(pprof.Lookup("goroutine").WriteTo(f, 2), f.Close())
	}
	if err != nil {
		d.log.Error("could not write down what the process hangs in", "err", err)
		return
	}
	d.log.Error("the lock engine is stuck: please report this, with the file that says what it hangs in", "file", path)
}

// endLocks ends all granting. It does not wait for ever for an engine that is
// stuck: then the membership ends soon, with cluster.ErrStuck.
func (d *daemon) endLocks() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.engine.Leave()
	}()
	select {
	case <-done:
	case <-time.After(stuckPatience):
		d.log.Error("the lock engine does not answer: it is left behind")
	}
}

// unmount ends the mount, upon which serve returns.
func (d *daemon) unmount(lazy bool) error {
	err := d.server.Load().Unmount(lazy)
	switch {
	case errors.Is(err, fusefs.ErrBusy):
		return withCode(exitBusy, err)
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
		d.log.Info("unmounted", "mount", d.cfg.Mountpoint)
		return err
	case err := <-nodeDone:
		nodeDone <- err
		if errors.Is(err, cluster.ErrStuck) {
			d.saveStacks()
			return &dead{err}
		}
		d.endLocks()
		return &dead{withCode(endCode(err), fmt.Errorf("this node is no member of the cluster any more: %w", d.refused(err)))}
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

// leaveTime is how long leaving may take: the machine gives up after 5 s.
const leaveTime = 8 * time.Second

// leave ends the membership, so that the others need not wait for this node.
func (d *daemon) leave(nodeDone chan error) error {
	d.endLocks()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := d.node.Load().Leave(ctx); err != nil {
		return nil // it has ended before
	}
	select {
	case err := <-nodeDone:
		if e, ok := errors.AsType[*cluster.Ended](err); ok && e.Code == member.EndLeft {
			return nil
		}
		return err
	case <-ctx.Done():
		return errors.New("could not leave in good order: the others go on without this node in some seconds")
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
		Policy: d.rules.wanted(),
		FileID: d.fileID.name, TakesPath: d.fileID.open,
		HasFence: d.cfg.FenceCommand != "",
		Former:   d.state.lives(),
		Restored: d.cfg.Restored,
		Random:   rand.Uint64,
		Made:     func() string { return time.Now().UTC().Format(time.RFC3339) },
	})
	if err != nil {
		return err
	}
	node := cluster.New(cluster.Options{
		Self: self.Peer, Cluster: d.clusterID, Machine: m, Params: d.params, Saved: d.loadSaved(),
		Transport: (*clusterTransport)(d),
		Storage:   (*storage)(d),
		Now:       boottime,
		Fence:     d.fence,
		Save:      d.save,
		Named:     d.state.addLife,
		Notice:    d.notice,
		Begin:     d.begin,
		Static:    d.contacts.list,
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
	if err := unix.Fstat(int(d.state.lock.Fd()), &st); err != nil {
		return member.Member{}, fmt.Errorf("lock file: %w", err)
	}
	m := member.Member{
		Node: member.Node{Peer: d.identity.ID().String()},
		Host: host, Version: version(), Boot: strings.TrimSpace(string(boot)),
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
			return withCode(endCode(err), d.refused(err))
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
		return withCode(exitUsage, err)
	}
	server, err := fusefs.New(fusefs.Options{
		Root: d.root, MountPoint: d.cfg.Mountpoint, Replace: d.cfg.Replace, Source: d.cfg.Source, Mount: opts, FileIDs: d.fileIDs(),
		Rule:         d.ruleFor,
		Movable:      d.movable,
		LateWrite:    d.lateWrite,
		LockedBelow:  d.lockedBelow,
		Hold:         d.cfg.hold(),
		WriteThrough: true,
		Log:          d.log,
	})
	if err != nil {
		return err
	}
	d.server.Store(server)
	return nil
}

// live reports whether this node may grant a lock, or begin I/O under one.
func (d *daemon) live(guard time.Duration) bool {
	n := d.node.Load()
	return n != nil && n.Live(guard)
}

// boottime is CLOCK_BOOTTIME in milliseconds.
func boottime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("clock_gettime: %v", err)) // it can't fail on Linux
	}
	return ts.Nano() / 1e6
}
