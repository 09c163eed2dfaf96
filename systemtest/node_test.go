package systemtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// proc is a process: a driver with its machine, an engine, and the programs
// that use its mount.
type proc struct {
	w        *world
	name     string // also its peer ID
	serial   int
	host     *host
	node     *cluster.Node
	engine   *engine.Engine
	rule     atomic.Value // the algorithm of all files
	cancel   context.CancelFunc
	gone     chan struct{} // closed when all of it has ended
	programs []*program
	wire     *wire // if wired
	disk     client
	cache    map[locks.Key][]int // versions of the cells that this node has cached
	dropped  map[locks.Key]int   // how often it dropped them
	expelled int
	inbox    []func()
	ended    *member.End
	closing  bool // it is being unmounted

	ledger    *ledger  // what outlives it; nil: nothing does
	due       bool     // it was killed, and a successor comes
	postponed []func() // until then, what its programs do next

	legacy    *legacy // nil: nothing is taken over
	succeeded bool    // it went on with what it took over

	// Guarded by world.mu.
	isAlive      bool
	online       bool
	isStopped    bool
	stoppedUntil time.Duration
	gate         chan struct{} // the driver waits for it to be closed; nil while it runs
	dead         chan struct{} // closed when it is killed
	epoch        locks.Epoch   // of the transport
	self         locks.NodeID
	members      []locks.NodeID
	sessions     map[locks.NodeID]*session
	memory       bugMemory
	stating      atomic.Bool // its engine says its state
}

// start starts a process with a new state directory on a new host.
func (w *world) start(name string) *proc { return w.startOn(name, w.newHost()) }

// ofPeer is the process of a peer that is alive; the first one, if there is a
// copy of it.
func (w *world) ofPeer(peer string) *proc {
	for _, p := range w.byName[peer] {
		if p.alive() {
			return p
		}
	}
	return nil
}

// startOn starts one on a host. It returns nil if a process of the peer is
// alive: it has the lock of the state directory, unless the host has a copy of that.
func (w *world) startOn(name string, h *host) *proc { return w.startAs(name, h, nil) }

// startAs is startOn; l is what the process takes over, if anything.
func (w *world) startAs(name string, h *host, l *legacy) *proc {
	name = w.id(name)
	if w.ofPeer(name) != nil && !h.copied {
		return nil
	}
	p := &proc{
		w: w, name: name, serial: len(w.procs), host: h, isAlive: true, dead: make(chan struct{}), gone: make(chan struct{}), legacy: l,
		cache: map[locks.Key][]int{}, dropped: map[locks.Key]int{},
	}
	p.disk.init(p)
	if w.opt.kills {
		p.ledger = newLedger()
	}
	p.node = p.newDriver()
	p.engine = p.newEngine()
	if l != nil {
		p.inherit(l)
	}
	p.node.Bind((*boundEngine)(p))
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	w.procs = append(w.procs, p)
	w.mu.Lock()
	if len(w.byName[name]) == 0 {
		w.names = append(w.names, name)
	}
	w.mu.Unlock()
	w.byName[name] = append(w.byName[name], p)
	wired := make(chan struct{})
	if w.opt.wired {
		wired = p.connect(ctx)
	} else {
		close(wired)
	}
	w.logf("%s starts", name)
	go func() {
		defer close(p.gone)
		engineDone := make(chan struct{})
		go func() { defer close(engineDone); _ = p.engine.Run(ctx) }()
		err := p.node.Run(ctx)
		if e, ok := errors.AsType[*cluster.Ended](err); ok {
			w.from(name, 0, func() { p.end(&e.End) })
		} else if !errors.Is(err, context.Canceled) {
			w.check.failf("%s: the driver ended: %v", name, err)
		}
		<-ctx.Done()
		<-engineDone
		<-wired
	}()
	for i := range w.opt.programs {
		if l != nil {
			break // it has those of its former self
		}
		g := newProgram(p, i)
		p.programs = append(p.programs, g)
		g.think()
	}
	return p
}

// newDriver makes the driver and its machine.
func (p *proc) newDriver() *cluster.Node {
	w := p.w
	w.mu.Lock()
	saved, lives := p.host.saved, slices.Clone(p.host.lives)
	w.mu.Unlock()
	random := rand.New(rand.NewPCG(w.opt.seed, uint64(p.serial)+1000))
	self := member.Member{Node: member.Node{Peer: p.name}, Host: "host-" + p.name, Addrs: []string{"/addr/" + p.name + p.host.addr}, Boot: p.host.boot, Lock: p.host.lock, Cache: w.opt.cache}
	if w.opt.bug == "a former self is not replaced" {
		self.Lock = member.LockFile{}
	}
	var succeeds member.Node
	var heir *member.Heir
	if p.legacy != nil {
		if heir = p.legacy.heir; heir == nil {
			succeeds = p.legacy.node
		}
	}
	m, err := member.New(member.Config{
		Succeeds: succeeds, Heir: heir,
		Params: w.opt.params, Cluster: strings.Repeat("c", 32), Self: self,
		Former: lives, FileID: p.host.files(), Restored: p.host.restored,
		Random: random.Uint64, HasFence: w.opt.fence,
		Made: func() string { return "2026-01-01T00:00:00Z" },
	})
	if err != nil {
		panic(err)
	}
	return cluster.New(cluster.Options{
		Self: p.name, Cluster: strings.Repeat("c", 32), Machine: m, Params: w.opt.params, Saved: saved,
		Transport: (*transport)(p), Storage: (*storage)(p),
		Now:   p.driverClock,
		Fence: p.fence,
		Save: func(s member.Saved) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			p.host.saved = s
			return nil
		},
		Named: func(inc member.Inc) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			p.host.lives = append(p.host.lives, inc)
			return nil
		},
		Claim:  p.claims,
		Notice: p.notice,
		Begin:  p.begin,
		Static: p.known,
		Log:    slog.New((*logHandler)(p)),
	})
}

// newEngine makes the engine.
func (p *proc) newEngine() *engine.Engine {
	w := p.w
	p.rule.Store(w.opt.algorithm)
	if p.legacy != nil {
		p.rule.Store(p.legacy.former.rule.Load())
	}
	rng := rand.New(rand.NewPCG(w.opt.seed, uint64(p.serial)+2000))
	o := engine.Options{
		Transport: (*transport)(p), Files: (*files)(p), Recorder: (*recorder)(p), Log: slog.New((*logHandler)(p)),
		Algorithms: algorithms,
		Rule:       func(string) string { return p.rule.Load().(string) },
		Uniform:    func() string { return p.rule.Load().(string) },
		Live:       p.live,
		Guard:      time.Duration(w.opt.params.Guard) * ms,
		Jitter:     p.jitter,
	}
	if p.ledger != nil {
		o.Ledger = p.ledger
	}
	if w.opt.many {
		o.Expire = time.Duration(20+rng.IntN(200)) * ms
		o.Delegations = engine.DelegationLimits{
			After: 1 + rng.IntN(2), Quiet: time.Duration(1+rng.IntN(50)) * ms,
			Unused: time.Second, Pause: time.Duration(1+rng.IntN(50)) * ms, MaxPause: 100 * ms,
		}
	}
	if w.opt.seed%5 == 2 {
		o.AskBack = engine.AskBackLimits{After: 1, Often: time.Second, Missed: 1}
	}
	return engine.New(o)
}

// jitter is a number that the moment decides: goroutines ask for theirs in any order.
func (p *proc) jitter() float64 {
	return rand.New(rand.NewPCG(p.w.opt.seed+uint64(p.serial), uint64(p.w.now()))).Float64()
}

func (p *proc) alive() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.isAlive
}

// clock is CLOCK_BOOTTIME in milliseconds.
func (p *proc) clock() int64 {
	now := int64(p.w.now())
	return p.host.offset.Load() + (now+now/1_000_000*p.host.ppm)/int64(ms)
}

// driverClock is the clock as the driver reads it before each step, where a
// stopped process waits.
func (p *proc) driverClock() int64 {
	for {
		p.w.mu.Lock()
		gate := p.gate
		p.w.mu.Unlock()
		if gate == nil {
			return p.clock()
		}
		<-gate
	}
}

// live is what the engine and the mount ask at the place of use.
func (p *proc) live(guard time.Duration) bool {
	if p.w.opt.bug == "liveness is cached" {
		return p.alive() && p.status().Live
	}
	return p.alive() && p.clock()+guard.Milliseconds() < p.node.LiveUntil()
}

func (p *proc) status() member.Status { return p.node.Status() }

// granting is live, with the state of all others, and not stopped.
func (p *proc) granting() bool {
	return p.alive() && !p.stopped() && p.status().Granting && p.live(0)
}

func (p *proc) stopped() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.isStopped
}

// deliver has the process do something now, or when it goes on.
func (p *proc) deliver(do func()) {
	switch {
	case !p.alive():
	case p.stopped():
		p.inbox = append(p.inbox, do)
	default:
		do()
	}
}

func (p *proc) message(from string, b []byte) {
	b = p.twistReceived(from, b)
	if err := p.node.Message(from, b); err != nil {
		p.w.check.failf("%s cannot read a message of %s: %v", p.name, from, err)
	}
}

func (p *proc) receiveState(ctx context.Context, from locks.NodeID, e locks.Epoch, state []byte) {
	p.node.State(ctx, from, e, state)
}

// outcome is of something that the one goroutine does for one of a process.
type outcome struct {
	look member.Look
	err  error
}

// await has the one goroutine begin something, and waits for its outcome. What
// is the name of what waits: of all that begin at one moment it is the order.
func (p *proc) await(what string, begin func(done func(outcome))) outcome {
	result := make(chan outcome, 1)
	p.w.from(p.name+" "+what, 0, func() {
		begin(func(x outcome) { p.deliver(func() { result <- x }) })
	})
	select {
	case x := <-result:
		return x
	case <-p.dead:
		return outcome{err: errors.New("killed")}
	}
}

func (p *proc) describe() string {
	if p.ended != nil {
		return fmt.Sprintf("ended: %v: %s", p.ended.Code, p.ended.Text)
	}
	if !p.alive() {
		return "dead"
	}
	s := p.status()
	held, waiting := p.engine.Count()
	text := fmt.Sprintf("%v %v, view %v, live=%v granting=%v, %s%s, proposal %v; %d locks held, %d waiting",
		s.Self, s.State, s.View, s.Live, s.Granting, s.Why, s.Disk, s.Proposal, held, waiting)
	for _, l := range p.engine.Locks() {
		text += fmt.Sprintf("\n   %v %v %v pid %d state %d blocked by %v %v", l.Key, l.Mode, l.Range, l.Program.PID, l.State, l.Local, l.Remote)
	}
	for _, g := range p.programs {
		text += fmt.Sprintf("\n   pid %d waiting=%v busy=%v gone=%v doing %s", g.pid, g.waiting, g.busy, g.gone, g.doing)
	}
	return text
}
