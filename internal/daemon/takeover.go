package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/sync/errgroup"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/version"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// takeover is what a daemon leaves if it is killed, and what it goes on with of one that
// was.
type takeover struct {
	own  *estate.Own  // nil: it leaves nothing
	why  error        // and that is the reason, if it should
	left *estate.Left // nil: it began anew
	gc   int          // see debug.SetGCPercent
	gcs  uint64       // so often it was looked for garbage meanwhile

	times times // of what this daemon does until it has gone on

	mu      sync.Mutex
	took    time.Duration // until calls were answered
	count   int           // takeovers since the mount was made
	remains bool          // what daemons that were killed have left did not end in time
}

// testator is a daemon as it says what it leaves if it is killed.
type testator struct{ *daemon }

// begin makes what this daemon leaves, and opens what it goes on with.
func (d testator) begin() error {
	if !d.cfg.Takeover {
		return nil
	}
	t, e := &d.takeover, d.minder.Estate()
	generation := uint64(1)
	if e != nil {
		generation = e.Newest().Generation + 1
	}
	lifeline, watcher, err := d.minder.Lifeline()
	if err == nil {
		t.own, err = estate.Begin(generation, version.String(), lifeline, watcher)
	}
	if d.left != nil {
		t.count = d.left.Takeovers
		d.left.EndBy(t.own.End)
	}
	if t.why = err; e == nil {
		if err != nil {
			d.log.Warn("if this daemon is killed nobody can go on with what it holds", "err", err)
		}
		return nil
	}
	if err != nil { // then there is nobody to go on after this one: it is as if it began anew
		return err
	}
	t.times.began = e.Died
	t.times.mark("begun")
	// What is taken over is needed, and to look for garbage meanwhile takes time: ten times and
	// 85 ms of a processor, of 360 ms in all, with 9,400 open files.
	t.gc = debug.SetGCPercent(-1)
	t.gcs = collections()
	if t.left, err = e.Open(); err != nil {
		return err
	}
	if err := t.own.GoesOn(t.left); err != nil {
		return err
	}
	t.count = e.Newest().Takeovers + 1
	t.left.HangUp()
	d.cfg.Restored, d.cfg.Replace = false, false
	return nil
}

// memory is where this daemon notes what it changes, so that it can say so: with what the one
// before it has noted, or else it knows of nothing before now.
func (t *takeover) memory(log *slog.Logger) (*recent.Memory, error) {
	if t.own == nil {
		return recent.New()
	}
	m, err := t.own.Recent(t.left)
	if err != nil && t.left != nil {
		log.Warn("what the daemon before this one has changed cannot be told to other hosts", "err", err)
		m, err = t.own.Recent(nil)
	}
	return m, err
}

// state is the state directory, which stays locked.
func (t *takeover) state(path string) (*statedir.Dir, error) {
	lock, err := t.left.StateLock()
	if err != nil {
		return nil, err
	}
	return &statedir.Dir{Path: path, Lock: lock}, nil
}

func (t *takeover) heir() *member.Heir {
	if t.left == nil {
		return nil
	}
	return &t.left.Heir
}

// collections is how often this process has looked for garbage.
func collections() uint64 {
	m := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(m)
	return m[0].Value.Uint64()
}

// mapped is how much memory Go has of the system, in bytes, as [debug.SetMemoryLimit] counts it.
func mapped() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64() - m[1].Value.Uint64())
}

// claim keeps who has claimed the place of the daemon that was killed, or of the program
// before this one: should this process be killed when it has that place, and before its
// ledger says so, the next one has to know of it.
func (d testator) claim() func([]member.Node) error {
	t, of := &d.takeover, d.left.Former()
	if t.left != nil {
		of = t.left.Heir.Of
	}
	if t.own == nil || of.IsZero() {
		return nil
	}
	return func(by []member.Node) error { return t.own.Claim(of, by) }
}

// listened is where the daemon that was killed has listened.
func (t *takeover) listened() (list []ma.Multiaddr) {
	if t.left == nil {
		return nil
	}
	for _, s := range t.left.Newest().Listen {
		if a, err := ma.NewMultiaddr(s); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// mounted is when the mount was made by another daemon, in ms of CLOCK_BOOTTIME; else 0.
func (t *takeover) mounted() int64 {
	if t.left == nil {
		return 0
	}
	return t.left.Newest().Mounted
}

// will is what this daemon leaves, with its control socket l.
func (d testator) will(l net.Listener, inForce bool) (w estate.Will, err error) {
	w = d.takeover.own.Will()
	c, err := l.(*net.UnixListener).SyscallConn()
	if err == nil {
		err = c.Control(func(fd uintptr) { w.Control = int(fd) })
	}
	w.State, w.InForce, w.Mounted, w.Takeovers = int(d.state.Lock.Fd()), inForce, d.upgrader.Mounted(), d.takeover.count
	for _, a := range d.host.Listening() {
		w.Listen = append(w.Listen, a.String())
	}
	return w, err
}

// bequeath tells the watcher that all that counts is of this daemon, which serves.
func (d testator) bequeath(l net.Listener) {
	t := &d.takeover
	if t.own == nil {
		return
	}
	w, err := d.will(l, true)
	if err == nil {
		err = d.minder.Bequeath(w)
	}
	if err != nil {
		t.mu.Lock()
		t.why = err
		t.mu.Unlock()
		d.log.Warn("if this daemon is killed nobody can go on with what it holds", "err", err)
	}
}

// awaitLoss says it when the keeper has ended. Nobody starts another one: it would have the
// memory of this process as it is by now, with all files that are mapped in it, which would
// not be gone when they are removed.
func (d testator) awaitLoss(ctx context.Context) {
	if d.takeover.own == nil {
		return
	}
	if err := d.takeover.own.AwaitLoss(ctx); err != nil {
		d.log.Error("if this daemon is killed nobody can go on with what it holds; unless who watches it has ended as well, "+d.restores(), "err", err)
	}
}

// restores is what makes a takeover possible again when only the keeper is missing.
func (d testator) restores() string {
	return fmt.Sprintf("`dmxfs upgrade %s` makes that possible again", d.cfg.Mountpoint)
}

// problem is what is not as it should be. Where the keeper has ended with all who watched, and
// another one watches by now, nobody can make that good, and so it is none.
func (d testator) problem() error {
	if err := d.takeover.own.Lost(); err != nil && d.minder.HasHeir() {
		return fmt.Errorf("not possible if this daemon is killed: %w; %s", err, d.restores())
	}
	return d.takeover.problem()
}

// taker is a daemon that goes on with what another one has left that was killed.
type taker struct{ goer }

// run is daemon.run with that: the mount, the locks, and a place in the cluster.
func (d taker) run(ctx context.Context, ready func()) error {
	g, ctx := errgroup.WithContext(ctx)
	kept, v, err := nodestate.ReadView(d.state.Path)
	if err != nil {
		return err
	}
	if kept.Cluster != d.clusterID {
		return fmt.Errorf("the daemon that was killed was in the cluster %s, and this is %s", kept.Cluster, d.clusterID)
	}
	l, err := d.listener()
	if err != nil {
		return err
	}
	// Before anything changes: whoever goes on after this one has to know of it.
	w, err := testator{d.daemon}.will(l, false)
	if err == nil {
		err = d.minder.Bequeath(w)
	}
	if err != nil {
		return err
	}
	self := d.identity.ID().String()
	d.find(v, func(peer string) bool { return peer != self })
	r, err := begin(ctx, d.daemon, func() error { return d.inherit(v) })
	if err != nil {
		return err
	}
	defer r.end()
	if err := d.join(); err != nil {
		return err
	}
	d.recordResumed("another daemon serves the mount")
	nodeDone := make(chan error, 1)
	// Beside the service: what needs no lock that is new needs no other host either.
	go func() {
		d.awaitConnections(r.nodeCtx)
		d.takeover.times.mark("connected")
		nodeDone <- d.node.Load().Run(r.nodeCtx)
	}()
	return d.serveAll(ctx, g, l, nodeDone, r.netDone, func() {
		d.takeover.times.mark("serves")
		testator{d.daemon}.bequeath(l)
		ready()
		d.takeover.gcs = collections() - d.takeover.gcs
		if err := d.state.Own(); err != nil {
			d.log.Warn("the state directory names a process that is gone", "err", err)
		}
		go d.settle(ctx)
	})
}

// listener is the control socket.
func (d taker) listener() (net.Listener, error) {
	f, err := d.takeover.left.Control()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("what should be the control socket %s is another one (%s)", admin.SocketName, l.Addr())
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}

// inherit takes the mount and the locks, and makes void what was left.
func (d taker) inherit(v *member.View) error {
	t := &d.takeover
	d.rules.Begin(v) // Rule answers as it did
	server, err := t.left.Resume(d.mountOptions(v))
	if err != nil {
		return err
	}
	if err := d.engine.Inherit(t.left.Locks); err != nil {
		return err
	}
	if err := t.left.Supersede(t.own); err != nil {
		return err
	}
	t.left.Close()
	d.server.Store(server)
	t.times.mark("inherited")
	given := d.engine.GiveUpUnknown(func(_ locks.Key, h locks.HandleID) bool { return server.Knows(h) }, "it was closed when the daemon was killed")
	d.log.Info("this daemon goes on with what the one that was killed has left", "killed", t.left.Newest().PID, "generation", t.own.Will().Generation,
		"requests", len(d.engine.Resumed()), "closed", given)
	return nil
}

// catchUp is for how long after the first answer it is not looked for garbage, at most, and
// catchUpMemory by how many bytes the process may grow in that time: it is looked for if it
// would by more, also because a limit of memory may be what has killed the one before.
const (
	catchUp       = time.Second
	catchUpMemory = 64 << 20
)

// collectAgain has it be looked for garbage again when those are answered who have waited for
// this daemon, with locks as well: until then that has the processors.
func (d taker) collectAgain(ctx context.Context) {
	limit := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(limit, mapped()+catchUpMemory))
	defer debug.SetMemoryLimit(limit)
	enough := time.NewTimer(catchUp)
	defer enough.Stop()
	select {
	case <-d.joined:
	case <-enough.C:
	case <-ctx.Done():
	}
	debug.SetGCPercent(d.takeover.gc)
}

// settle does what is left when the mount is served, and tells what came of it.
func (d taker) settle(ctx context.Context) {
	t := &d.takeover
	took := t.times.of("serves")
	t.mu.Lock()
	t.took = took
	t.mu.Unlock()
	d.collectAgain(ctx)
	// The journal of the daemon that was killed is open until its keeper has ended. That it
	// does not end, or that this node is no member yet, does not hold up the disk for ever.
	settled, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if err := t.awaitKeepers(settled); err != nil && ctx.Err() == nil {
		d.log.Error("the takeover has left something behind: the journal is in memory as long as that has it open", "err", err)
	}
	select {
	case <-d.joined:
	case <-settled.Done():
	}
	d.journal.Settle()
	select {
	case <-d.joined: // what it waits for is in status
	case <-ctx.Done():
		return
	}
	locked := t.times.of("joined")
	// One that is killed before it comes to this leaves a gap in the numbers.
	what := fmt.Sprintf("takeover %d of this mount: process %d goes on in the place of %d: no call was answered for %d ms, and no lock granted for %d ms",
		t.count, os.Getpid(), t.left.Newest().PID, took.Milliseconds(), locked.Milliseconds())
	lost := ""
	if d.lostAll.Load() {
		lost = "the others went on without this node before it had taken its place: the locks of this host are lost"
		what += "; " + lost
		d.log.Error("the takeover did not go as it should", "why", what)
	} else {
		d.log.Info("taken over: "+what, append(t.times.all(), "requests", len(d.engine.Resumed()), "collections", t.gcs)...)
	}
	d.journal.Append(journal.Record{Event: journal.TakenOver, Reason: what, Wait: took})
	process.GiveBackMemory(d.log) // what was read is garbage by now
	d.upgrader.TakenOver(took, locked, lost)
}

// settleTime is how long the journal may be in memory after a takeover. The watcher gives a
// keeper ten seconds to end.
const settleTime = 15 * time.Second

// awaitKeepers returns when the keepers of the daemons that were killed have ended, or with
// what is left when ctx does.
func (t *takeover) awaitKeepers(ctx context.Context) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		err := t.left.Remains()
		if err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.mu.Lock()
			t.remains = true
			t.mu.Unlock()
			return err
		}
	}
}

// problem is what is left of a takeover that should not be.
func (t *takeover) problem() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.remains {
		return nil
	}
	err := t.left.Remains()
	t.remains = err != nil
	return err
}

// goesOn reports whether a request of the daemon that was killed goes on. It is asked when
// the locks are taken.
func (d taker) goesOn() func(request uint64) bool {
	all := sync.OnceValue(func() map[uint64]bool {
		m := map[uint64]bool{}
		for _, r := range d.engine.Resumed() {
			m[r] = true
		}
		return m
	})
	return func(request uint64) bool { return all()[request] }
}

// soFar is how often this mount was taken over, and for how long no call was answered
// the last time.
func (t *takeover) soFar() (count int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count, t.took
}

// status is what status says of it.
func (d testator) status() *admin.Takeover {
	if !d.cfg.Takeover {
		return nil
	}
	t := &d.takeover
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &admin.Takeover{Count: t.count, LastMS: t.took.Milliseconds()}
	why := t.why
	if why == nil {
		s.Generation = t.own.Will().Generation
		why = errors.Join(t.own.Problem(), d.engine.LedgerStatus().Err, d.server.Load().LedgerErr())
	}
	if why != nil {
		s.Why = why.Error()
	}
	s.Possible = why == nil
	return s
}
