package systemtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"dmxfs/locks"
	"dmxfs/locks/engine"
	"dmxfs/p2p/cluster"
	"dmxfs/p2p/member"
)

// host is what outlives a process.
type host struct {
	offset atomic.Int64 // of its clock, ms
	ppm    int64        // its drift
	boot   string
	lock   member.LockFile
	saved  member.Saved // guarded by world.mu
	dirty  *dirtyPages
}

// newHost makes a host with a clock of its own.
func (w *world) newHost() *host {
	w.boots++
	h := &host{boot: fmt.Sprintf("boot%d", w.boots), lock: member.LockFile{Dev: 1, Ino: uint64(w.boots)}, dirty: newDirtyPages(w)}
	h.offset.Store(100_000 + w.rng.Int64N(1_000_000))
	if d := w.opt.drift; d > 0 {
		h.ppm = w.rng.Int64N(2*d+1) - d
	}
	w.hosts = append(w.hosts, h)
	return h
}

// reboot makes the host another one, for what is proved of the dead.
func (w *world) reboot(h *host) *host {
	w.boots++
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &host{ppm: h.ppm, boot: fmt.Sprintf("boot%d", w.boots), lock: member.LockFile{Dev: 1, Ino: uint64(w.boots)}, saved: h.saved, dirty: newDirtyPages(w)}
	n.offset.Store(h.offset.Load())
	w.hosts = append(w.hosts, n)
	return n
}

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
	expelled int
	inbox    []func()
	ended    *member.End
	closing  bool // it is being unmounted

	// Guarded by world.mu.
	isAlive      bool
	isStopped    bool
	stoppedUntil time.Duration
	gate         chan struct{} // the driver waits for it to be closed; nil while it runs
	dead         chan struct{} // closed when it is killed
	epoch        locks.Epoch   // of the transport
	self         locks.NodeID
	members      []locks.NodeID
	sessions     map[locks.NodeID]*session
	memory       bugMemory
}

// start starts a process with a new state directory on a new host.
func (w *world) start(name string) *proc { return w.startOn(name, w.newHost()) }

// startOn starts one on a host. It returns nil if a process of the peer is
// alive: it has the lock of the state directory.
func (w *world) startOn(name string, h *host) *proc {
	name = w.id(name)
	if w.target(name) != nil {
		return nil
	}
	p := &proc{
		w: w, name: name, serial: len(w.procs), host: h, isAlive: true, dead: make(chan struct{}), gone: make(chan struct{}),
		cache: map[locks.Key][]int{},
	}
	p.disk.init(p)
	w.mu.Lock()
	saved := h.saved
	w.mu.Unlock()
	random := rand.New(rand.NewPCG(w.opt.seed, uint64(p.serial)+1000))
	self := member.Member{Node: member.Node{Peer: name}, Host: "host-" + name, Addrs: []string{"/addr/" + name}, Boot: h.boot, Lock: h.lock, Cache: w.opt.cache}
	if w.opt.bug == "a former self is not replaced" {
		self.Lock = member.LockFile{}
	}
	m, err := member.New(member.Config{
		Params: w.opt.params, Cluster: strings.Repeat("c", 32), Self: self,
		Random: random.Uint64, HasFence: w.opt.fence,
		Made: func() string { return "2026-01-01T00:00:00Z" },
	})
	if err != nil {
		panic(err)
	}
	log := slog.New((*logHandler)(p))
	p.node = cluster.New(cluster.Options{
		Self: name, Cluster: strings.Repeat("c", 32), Machine: m, Params: w.opt.params, Saved: saved,
		Transport: (*transport)(p), Storage: (*storage)(p),
		Now:   p.driverClock,
		Fence: p.fence,
		Save: func(s member.Saved) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			h.saved = s
			return nil
		},
		Notice: func(n member.Notice) { w.logf("%s: %v", name, n) },
		Begin:  p.begin,
		Static: p.known,
		Log:    log,
	})
	p.rule.Store(w.opt.algorithm)
	rng := rand.New(rand.NewPCG(w.opt.seed, uint64(p.serial)+2000))
	p.engine = engine.New(engine.Options{
		Transport: (*transport)(p), Files: (*files)(p), Recorder: (*recorder)(p), Log: log,
		Algorithms: algorithms,
		Rule:       func(string) string { return p.rule.Load().(string) },
		Live:       p.live,
		Guard:      time.Duration(w.opt.params.Guard) * ms,
		Jitter:     rng.Float64, // under the engine's mutex
	})
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
		g := newProgram(p, i)
		p.programs = append(p.programs, g)
		g.think()
	}
	return p
}

// begin takes the rules of a view.
func (p *proc) begin(v *member.View) {
	rule := p.w.opt.algorithm
	if p.w.opt.rules && v.Policy.Hash != "" {
		rule = names[sourceOf(v.Policy.Hash)%uint64(len(names))]
	}
	if p.rule.Swap(rule) != rule && p.w.opt.bug != "the engine is not told of new rules" {
		p.engine.NewRules()
	}
}

// logHandler is the log of a node. An error in it is one of the program: here
// nothing goes wrong that it would not be made for.
type logHandler proc

func (h *logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *logHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *logHandler) WithGroup(string) slog.Handler            { return h }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	h.w.logf("%s log: %v %s", h.name, r.Level, text)
	if r.Level >= slog.LevelError && (*proc)(h).alive() {
		h.w.check.failf("%s logs an error: %s", h.name, text)
	}
	return nil
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

// stop stops the process for d (SIGSTOP, swap, a long GC).
func (p *proc) stop(d time.Duration) {
	w := p.w
	w.mu.Lock()
	if !p.isAlive {
		w.mu.Unlock()
		return
	}
	p.isStopped = true
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
	p.stoppedUntil = max(p.stoppedUntil, w.now()+d)
	w.mu.Unlock()
	w.logf("%s is stopped for %v", p.name, d)
	w.after(d, p.goOn)
}

func (p *proc) goOn() {
	w := p.w
	w.mu.Lock()
	if !p.isAlive || !p.isStopped || p.stoppedUntil > w.now() {
		w.mu.Unlock()
		return
	}
	p.isStopped = false
	w.mu.Unlock()
	w.logf("%s goes on", p.name)
	open := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !p.isStopped && p.gate != nil {
			close(p.gate)
			p.gate = nil
		}
	}
	// Which of its threads runs first nobody knows.
	driverFirst := w.chance(0.5)
	if driverFirst {
		open()
	}
	inbox := p.inbox
	p.inbox = nil
	for _, do := range inbox {
		w.after(0, func() { p.deliver(do) })
	}
	if !driverFirst {
		w.after(w.between(0, 20*ms), open)
	}
}

// pause stops the process and its clock: what a hypervisor may do.
func (p *proc) pause(d time.Duration) {
	p.stop(d)
	const step = 10 * ms
	for at := step; at <= d; at += step {
		p.w.after(at, func() { p.host.offset.Add(-step.Milliseconds()) })
	}
}

// kill ends the process. What it asked of the storage may still be done.
func (p *proc) kill() {
	w := p.w
	w.mu.Lock()
	if !p.isAlive {
		w.mu.Unlock()
		return
	}
	p.isAlive = false
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
	w.mu.Unlock()
	w.logf("%s is killed", p.name)
	close(p.dead)
	p.cancel()
	w.check.killed(p)
}

// end is the end of the membership, as the machine wants it.
func (p *proc) end(e *member.End) {
	if !p.alive() {
		return
	}
	p.w.logf("%s ended: %v %s", p.name, e.Code, e.Text)
	p.ended = e
	p.kill()
}

// leave is an unmount: programs end first, and what they wrote is written out.
func (p *proc) leave() {
	w := p.w
	w.logf("%s leaves", p.name)
	p.closing = true
	deadline := w.now() + 3*time.Second
	var try func()
	try = func() {
		busy := len(p.host.dirty.writes) > 0
		for _, g := range p.programs {
			if g.waiting {
				g.waiting = false
				close(g.cancel)
			}
			// At the deadline the mount is taken away from who uses it.
			busy = busy || g.busy && w.now() < deadline
		}
		if busy {
			w.after(20*ms, func() { p.deliver(try) })
			return
		}
		for _, g := range p.programs {
			g.gone = true
		}
		p.engine.Leave()
		_ = p.node.Leave(context.Background())
	}
	p.deliver(func() {
		p.host.dirty.whenClean(func() {})
		try()
	})
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

// fence is the fence command, or syncfs.
func (p *proc) fence(ctx context.Context, f member.Fence) error {
	if !f.Dead {
		return p.await("fence "+f.Node.String(), func(done func(outcome)) {
			p.w.after(p.w.between(0, 2000*ms), func() { done(outcome{}) })
		}).err
	}
	if p.w.opt.bug == "no syncfs before a replacement" {
		return nil
	}
	return p.await("syncfs "+f.Node.String(), func(done func(outcome)) { p.host.dirty.whenClean(func() { done(outcome{}) }) }).err
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

// boundEngine is the engine as the driver knows it.
type boundEngine proc

func (b *boundEngine) Freeze() {
	if b.w.opt.bug == "no freeze" {
		return
	}
	b.engine.Freeze()
}

func (b *boundEngine) State() []byte {
	if b.w.opt.bug == "a state of before the freeze" && b.memory.state != nil {
		s := b.memory.state
		b.memory.state = b.engine.State()
		return s
	}
	s := b.engine.State()
	b.memory.state = s
	return s
}

func (b *boundEngine) Install(v *locks.View) {
	b.engine.Install(v)
	if b.w.opt.bug == "no barrier of states" {
		for _, m := range v.Members {
			if m != v.Self {
				_ = b.engine.Sync(m, v.Epoch, []byte{0})
			}
		}
	}
}

func (b *boundEngine) Sync(from locks.NodeID, e locks.Epoch, s []byte) error {
	if err := b.engine.Sync(from, e, s); err != nil {
		b.w.check.failf("%s: %v", b.name, err)
		return err
	}
	if b.w.opt.bug == "granting before the last state" && b.memory.synced != e && from != b.self {
		b.memory.synced = e
		for _, m := range b.members {
			_ = b.engine.Sync(m, e, []byte{0})
		}
	}
	return nil
}

func (b *boundEngine) Expelled(why string) {
	p := (*proc)(b)
	if b.w.opt.bug == "the expelled keeps its locks" {
		return
	}
	if !p.alive() {
		return
	}
	held := b.w.check.heldBy(p)
	lost := b.engine.Expelled(why)
	b.w.check.expelled(p, held, lost)
}

func (b *boundEngine) Resume() {
	if b.w.opt.bug != "what waits is not resumed" {
		b.engine.Resume()
	}
}

func (b *boundEngine) Ping() { b.engine.Ping() }

// recorder is the journal.
type recorder proc

func (r *recorder) Healthy() error { return nil }

func (r *recorder) Record(ev engine.Event) { r.w.check.record((*proc)(r), ev) }

// sourceOf is a number for a name, for random numbers of its own.
func sourceOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}
