package member_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// node is a process: a machine, the driver and the engine around it, and its
// host's clock and storage client.
type node struct {
	w     *world
	name  string // also its peer ID
	host  *host
	m     *member.Machine
	alive bool
	end   *member.End
	out   member.Output

	// What the engine and the file system see.
	published int64 // LiveUntil
	// A turn of the engine that is under way may have read LiveUntil before
	// a freeze or an expulsion: until the engine acknowledges, it is used.
	held        int64
	heldNode    member.Node
	heldEpoch   locks.Epoch
	answers     []member.Answered
	notices     []member.Notice
	epoch       locks.Epoch
	taken       map[member.Node]bool // whose state the engine has
	expelled    int
	wasGranting bool
	ackAt       int64 // real time of its last acknowledgment

	takesPath bool // of its configuration

	stoppedUntil int64 // real time; 0: it runs
	inbox        []member.Input
	ticked       bool // a tick is waiting in the inbox

	disk client
	took *takeover // what it goes on with; nil: nothing
}

// host is what outlives a process.
type host struct {
	offset int64 // of its clock, ms
	ppm    int64 // its drift
	boot   string
	lock   member.LockFile
	saved  member.Saved
	lives  []member.Inc // beside the lock file
	addr   string       // empty: /addr/ and the name of its process
	ledger *ledgerBox   // of the state directory
}

// newHost makes a host with a clock of its own.
func (w *world) newHost() *host {
	w.boots++
	h := &host{offset: 100_000 + w.rng.Int64N(1_000_000), boot: fmt.Sprintf("boot%d", w.boots), lock: member.LockFile{Dev: 1, Ino: uint64(w.boots)}, ledger: new(ledgerBox)}
	if d := w.opt.drift; d > 0 {
		h.ppm = w.rng.Int64N(2*d+1) - d
	}
	return h
}

// start starts a process with a new state directory on a new host.
func (w *world) start(name string) *node { return w.startOn(name, w.newHost(), nil) }

// startOn starts one on a host; adapt may change what it is made of.
// It returns nil if a process of the peer is alive on the same host: it has
// the lock of the state directory.
func (w *world) startOn(name string, h *host, adapt func(*member.Config)) *node {
	for _, n := range w.nodes {
		if n.alive && n.name == name && !w.opt.clones {
			return nil
		}
	}
	cfg := member.Config{
		Params:   w.opt.params,
		Cluster:  strings.Repeat("c", 32),
		Self:     member.Member{Node: member.Node{Peer: name}, Host: "host-" + name, Addrs: []string{"/addr/" + name + h.addr}, Boot: h.boot, Lock: h.lock, Cache: w.opt.cache},
		Former:   slices.Clone(h.lives),
		Random:   w.rng.Uint64,
		HasFence: w.opt.fence,
		FileID:   w.opt.fileID,
		Made:     func() string { return "2026-01-01T00:00:00Z" },
	}
	if len(w.nodes)%2 == 1 { // its option was left out
		cfg.FileID, cfg.TakesPath = "inode 1", true
	}
	if adapt != nil {
		adapt(&cfg)
	}
	if cfg.Heir == nil {
		h.ledger.l = nil // it begins one of its own
	}
	var m *member.Machine
	if w.opt.raw {
		m = member.NewUnchecked(cfg)
	} else {
		var err error
		if m, err = member.New(cfg); err != nil {
			panic(err)
		}
	}
	if w.opt.bug != "" {
		member.Plant(m, w.opt.bug)
	}
	n := &node{w: w, name: name, host: h, m: m, alive: true, takesPath: cfg.TakesPath}
	w.nodes = append(w.nodes, n)
	w.byPeer[name] = append(w.byPeer[name], n)
	w.logf("%s starts", name)
	n.input(member.Start{Saved: h.saved})
	n.tickIn(w.rng.Int64N(w.opt.params.Tick*ms + 1))
	return n
}

// clock is CLOCK_BOOTTIME in milliseconds.
func (n *node) clock() int64 {
	return n.host.offset + (n.w.now+n.w.now*n.host.ppm/1_000_000)/ms
}

func (n *node) tickIn(d int64) {
	n.w.after(d, func() {
		if !n.alive {
			return
		}
		n.input(member.Tick{})
		d := n.w.opt.params.Tick * ms
		if n.w.chance(0.02) { // the scheduler is late
			d += n.w.between(0, 60)
		}
		n.tickIn(d)
	})
}

// input gives an input to the machine, or keeps it while the process is stopped.
func (n *node) input(in member.Input) {
	if !n.alive {
		return
	}
	if n.stopped() {
		if _, ok := in.(member.Tick); ok {
			if n.ticked { // a ticker keeps one
				return
			}
			n.ticked = true
		}
		n.inbox = append(n.inbox, in)
		return
	}
	n.step(in)
}

func (n *node) stopped() bool { return n.stoppedUntil > n.w.now }

// stop stops the process for d milliseconds (SIGSTOP, swap, a long GC).
func (n *node) stop(d int64) {
	if !n.alive {
		return
	}
	n.w.logf("%s is stopped for %d ms", n.name, d)
	n.stoppedUntil = max(n.stoppedUntil, n.w.now+d*ms)
	n.w.after(d*ms, n.wake)
}

func (n *node) wake() {
	if !n.alive || n.stopped() {
		return
	}
	n.w.logf("%s goes on", n.name)
	n.stoppedUntil = 0
	inbox := n.inbox
	n.inbox, n.ticked = nil, false
	// What waits comes in the order of arrival, but the tick may be seen
	// before or after anything else.
	if n.w.chance(0.5) {
		inbox = append([]member.Input{member.Tick{}}, inbox...)
	}
	for i, in := range inbox {
		if n.stopped() {
			n.inbox = append(n.inbox, inbox[i:]...)
			return
		}
		n.input(in)
	}
}

// pause stops the process and its clock: what a hypervisor may do.
func (n *node) pause(d int64) {
	n.w.logf("%s is paused with its clock for %d ms", n.name, d)
	n.stoppedUntil = max(n.stoppedUntil, n.w.now+d*ms)
	step := int64(10)
	for at := step; at <= d; at += step {
		n.w.after(at*ms, func() { n.host.offset -= step })
	}
	n.w.after(d*ms, n.wake)
}

// kill ends the process. What it asked of the storage may still be done.
func (n *node) kill() {
	n.w.logf("%s is killed", n.name)
	n.alive = false
}

func (n *node) step(in member.Input) {
	w := n.w
	before, beforeEpoch := n.m.Self(), n.epoch
	now := n.clock()
	n.m.Step(now, in, &n.out)
	out := &n.out
	if w.tracing {
		n.traceStep(now, in)
	}

	if (out.Freeze != nil || out.Expelled != nil || out.End != nil) && n.published > now {
		n.held, n.heldNode, n.heldEpoch = n.published, before, beforeEpoch
	}
	n.published = out.LiveUntil
	w.check.noticed(n)
	if out.Expelled != nil {
		n.expelled++
		w.after(w.between(0, 5), func() { n.held = 0 })
	}
	if f := out.Freeze; f != nil {
		delay := w.between(0, 3)
		if w.chance(0.05) {
			delay = w.between(0, 60)
		}
		if w.opt.slowEngine && w.chance(0.01) {
			delay = w.between(0, 3000)
		}
		n.ackAt = max(n.ackAt, w.now+delay) // it obeys in order
		w.after(n.ackAt-w.now, func() { n.acknowledge(f) })
	}
	if s, ok := in.(member.SyncArrived); ok && out.TakeSync {
		if s.Epoch != n.epoch {
			w.check.failf("%v takes a state of %d at %d", n.m.Self(), s.Epoch, n.epoch)
		}
		n.taken[s.From] = true
	}
	for _, e := range out.Send {
		// A view is a fact of the past; all else speaks for its epoch.
		if _, ok := e.Msg.(member.ViewMsg); !ok && e.Epoch > n.epoch && n.m.State() != member.StateOut && w.opt.bug == "" {
			w.check.failf("%v sends %v before its engine is at %d", n.m.Self(), e, e.Epoch)
		}
		w.transmit(n, e)
	}
	for _, to := range out.SendSync {
		w.transmitSync(n, to, n.m.Epoch())
	}
	if out.Storage != nil {
		n.begin(out.Storage)
	}
	for _, f := range out.Fence {
		w.after(w.between(0, 20), func() { n.fence(f) })
	}
	n.answers = append(n.answers, out.Answers...)
	if len(n.notices) < 1000 {
		n.notices = append(n.notices, out.Notices...)
	}
	if out.Save != nil {
		n.host.saved = *out.Save
	}
	if out.Inc != 0 {
		n.host.lives = append(n.host.lives, out.Inc)
	}
	if out.Granting {
		w.check.grants(n)
	}
	if out.End != nil {
		n.end = out.End
		n.alive = false
	}
	w.check.live(n)
}

// traceStep writes a step down, unless it is the ordinary course of things.
func (n *node) traceStep(now int64, in member.Input) {
	text := strings.TrimSpace(n.out.String())
	quiet := n.out.Granting == n.wasGranting && n.out.Freeze == nil && !isWrite(n.out.Storage) && n.out.Synced == 0 &&
		n.out.Expelled == nil && len(n.out.Notices) == 0
	n.wasGranting = n.out.Granting
	switch in := in.(type) {
	case member.Tick, member.SyncArrived:
		if quiet {
			return
		}
	case member.Received:
		if _, hb := in.Msg.(member.HB); hb && quiet {
			return
		}
	case member.Done:
		if _, look := in.Op.(member.LookOp); look && in.Err == nil && in.Look.View == nil && quiet {
			return
		}
	}
	n.w.logf("%s (%d) %v => live=%d granting=%v %s", n.name, now, in, max(n.out.LiveUntil-now, 0), n.out.Granting, text)
}

func isWrite(op member.Op) bool {
	_, look := op.(member.LookOp)
	return op != nil && !look
}

// acknowledge is the engine's answer to a freeze.
func (n *node) acknowledge(f *member.Freeze) {
	if !n.alive {
		return
	}
	if n.stopped() {
		n.w.after(n.stoppedUntil-n.w.now, func() { n.acknowledge(f) })
		return
	}
	n.held = 0
	if f.View != nil {
		n.epoch = f.View.Epoch
		n.taken = map[member.Node]bool{}
		n.names(f.View)
	}
	n.input(member.Frozen{Seq: f.Seq})
}

// fence is the driver's fence command, or syncfs.
func (n *node) fence(f member.Fence) {
	w := n.w
	res := member.Fenced{Node: f.Node}
	if !f.Dead && w.now < w.fenceFails {
		res.Err = errors.New("exit status 1")
	}
	if !f.Dead && res.Err == nil {
		w.fencedFirst[n.m.Epoch()+1] = true
	}
	if !f.Dead {
		w.after(w.between(0, 2000), func() { n.input(res) })
		return
	}
	n.input(res)
}

// live reports whether, by its own clock, this process may grant or do I/O
// under a lock, as who, and at which epoch.
func (n *node) live() (member.Node, locks.Epoch, bool) {
	if !n.alive {
		return member.Node{}, 0, false
	}
	now := n.clock()
	if now < n.held {
		return n.heldNode, n.heldEpoch, true
	}
	return n.m.Self(), n.epoch, now < n.published
}

// granting is live, with the state of all others, and not stopped.
func (n *node) granting() bool {
	return n.alive && !n.stopped() && n.out.Granting && n.clock() < n.published
}

func (n *node) describe() string {
	if n.end != nil {
		return fmt.Sprintf("ended: %v: %s", n.end.Code, n.end.Text)
	}
	if !n.alive {
		return "dead"
	}
	s := n.m.Status()
	return fmt.Sprintf("%v %v, view %v, live=%v granting=%v, %s%s, proposal %v", s.Self, s.State, s.View, s.Live, s.Granting, s.Why, s.Disk, s.Proposal)
}
