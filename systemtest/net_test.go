package systemtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// link is one direction between two peers. Guarded by world.mu.
type link struct {
	// Each kind has random numbers of its own: what is sent at one moment by
	// different goroutines must not depend on which was first.
	rng    [kinds]*rand.Rand
	name   [kinds]string
	cut    int // by how many faults
	queues bool
	queue  []func()      // what TCP keeps until the link is well again
	slow   time.Duration // that a message takes at most
	dup    float64
	loss   float64
}

// kind is what is on its way.
type kind int

const (
	memberMessage kind = iota
	stateMessage
	lockMessage
	kinds
)

// link finds or makes one. REQUIRES: w.mu held.
func (w *world) link(from, to string) *link {
	k := [2]string{from, to}
	l := w.links[k]
	if l == nil {
		l = new(link)
		for k := range kinds {
			l.name[k] = fmt.Sprintf("%s>%s %d", from, to, k)
			l.rng[k] = rand.New(rand.NewPCG(w.opt.seed, sourceOf(l.name[k])))
		}
		w.links[k] = l
	}
	return l
}

// change changes a link.
func (w *world) change(from, to string, f func(l *link)) {
	w.mu.Lock()
	f(w.link(from, to))
	w.mu.Unlock()
}

func (w *world) cut(from, to string, queues bool) {
	w.logf("cut %s->%s", from, to)
	w.change(from, to, func(l *link) {
		l.cut++
		l.queues = queues
	})
	if w.wires != nil {
		w.wireCut(from, to, w.wires.Cut)
	}
}

func (w *world) heal(from, to string) {
	w.logf("heal %s->%s", from, to)
	w.change(from, to, func(l *link) {
		if l.cut--; l.cut > 0 {
			return
		}
		for _, deliver := range l.queue {
			w.put(l.name[memberMessage], between(l.rng[memberMessage], 0, 50*ms), deliver)
		}
		l.queue = nil
		if w.wires != nil {
			w.wireCut(from, to, w.wires.Heal)
		}
	})
	w.signal()
}

// delay draws how long something takes. REQUIRES: w.mu held.
func (l *link) delay(k kind) time.Duration { return l.between(l.rng[k]) }

func (l *link) between(rng *rand.Rand) time.Duration {
	if l.slow > 0 {
		return between(rng, 0, l.slow)
	}
	return between(rng, 50*time.Microsecond, 2*ms)
}

// frameDelay is delay for a frame of the engine, decided by the moment: the
// goroutines that have a frame for one moment send it in any order.
func (w *world) frameDelay(l *link) time.Duration {
	rng := rand.New(rand.NewPCG(w.opt.seed+sourceOf(l.name[lockMessage]), uint64(w.now())))
	return l.between(rng)
}

// carry takes something that may be lost from one peer to another.
func (w *world) carry(k kind, from, to string, deliver func()) {
	w.mu.Lock()
	defer w.signal()
	defer w.mu.Unlock()
	l := w.link(from, to)
	switch {
	case l.cut > 0 && l.queues && len(l.queue) < 200:
		l.queue = append(l.queue, deliver)
		return
	case l.cut > 0 || l.loss > 0 && l.rng[k].Float64() < l.loss:
		return
	}
	d := l.delay(k)
	w.put(l.name[k], d, deliver)
	if l.dup > 0 && l.rng[k].Float64() < l.dup {
		w.put(l.name[k], d+between(l.rng[k], 0, 200*ms), deliver)
	}
}

// target is the process that has a peer's connections. Of two it is the one that
// made its connections last, as long as it runs.
func (w *world) target(peer string) (t *proc) {
	for _, p := range w.byName[peer] {
		if p.alive() && p.connected() && (t == nil || t.stopped() || !p.stopped()) {
			t = p
		}
	}
	return t
}

// holder is the process that is a node, if it runs.
func (w *world) holder(n locks.NodeID, peer string) *proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.byName[peer] {
		if p.isAlive && p.self == n {
			return p
		}
	}
	return nil
}

// connected reports whether it may have connections.
func (p *proc) connected() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.online
}

// transport is a process as its driver and its engine speak through it, with
// what package p2p guarantees of the channels.
type transport proc

// session carries the lock frames of one epoch from one node to another: all,
// in order, or the epoch ends. Guarded by world.mu.
type session struct {
	from   *proc
	peer   string // of the receiver
	fromID locks.NodeID
	toID   locks.NodeID
	epoch  locks.Epoch
	frames [][]byte
	last   time.Duration // when the last one arrives
	// Frames that have arrived while the session is blocked, and whether
	// somebody looks when it is not any more.
	arrived int
	blocked bool
}

func (t *transport) SetView(e locks.Epoch, self locks.NodeID, members []locks.NodeID) error {
	w := t.w
	w.mu.Lock()
	last := t.epoch
	t.epoch, t.self, t.members, t.sessions = e, self, members, map[locks.NodeID]*session{}
	w.mu.Unlock()
	if e <= last {
		w.check.failf("%s: SetView(%d) after %d", t.name, e, last)
	}
	if t.wire != nil {
		return t.wire.SetView(e, self, members)
	}
	return nil
}

func (t *transport) DropView() {
	t.w.mu.Lock()
	t.members, t.sessions = nil, nil
	t.w.mu.Unlock()
	if t.wire != nil {
		t.wire.DropView()
	}
}

func (t *transport) Member(to string, msg []byte) {
	if !(*proc)(t).alive() {
		return
	}
	from := t.name
	msg = (*proc)(t).twistSent(to, msg)
	if t.wire != nil {
		t.wire.member(to, msg)
		return
	}
	t.w.carry(memberMessage, from, to, func() {
		if p := t.w.target(to); p != nil {
			p.deliver(func() { p.message(from, msg) })
		}
	})
}

func (t *transport) Want(list []member.Contact, _ []string) {
	if t.wire != nil {
		t.wire.want(list)
	}
}

func (t *transport) Online(on bool) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.online = on
}

var errReset = errors.New("connection reset")

func (t *transport) SendSync(ctx context.Context, to locks.NodeID, e locks.Epoch, state []byte) error {
	p := (*proc)(t)
	if !p.alive() {
		return errReset
	}
	if t.wire != nil {
		return t.wire.SendSync(ctx, to, e, state)
	}
	node, err := member.ParseNode(to)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	tell := func(err error) {
		select {
		case done <- err:
		default: // it came twice
		}
	}
	w, from := t.w, p.status().Self.ID()
	w.carry(stateMessage, t.name, node.Peer, func() {
		o := w.target(node.Peer)
		if o == nil || w.epochOf(o) > e {
			tell(errReset)
			return
		}
		o.deliver(func() {
			o.receiveState(ctx, from, e, state)
			tell(nil)
		})
	})
	// A connection that is silent for long is given up.
	timeout := time.NewTimer(1500 * ms)
	defer timeout.Stop()
	select {
	case err := <-done:
		return err
	case <-timeout.C:
		return errReset
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *world) epochOf(p *proc) locks.Epoch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.epoch
}

// Send is the engine's.
func (t *transport) Send(e locks.Epoch, to locks.NodeID, frame []byte) {
	w, p := t.w, (*proc)(t)
	if !p.alive() {
		return
	}
	if t.wire != nil {
		_ = t.wire.Send(e, to, frame) // an error: the epoch has ended
		return
	}
	w.mu.Lock()
	defer w.signal()
	defer w.mu.Unlock()
	if e != t.epoch || !slices.Contains(t.members, to) {
		return // the epoch has ended
	}
	s := t.sessions[to]
	if s == nil {
		peer, _, _ := strings.Cut(string(to), ".")
		s = &session{from: p, peer: peer, fromID: t.self, toID: to, epoch: e}
		t.sessions[to] = s
	}
	if w.opt.bug == "a frame is lost" && w.link(t.name, s.peer).rng[lockMessage].IntN(40) == 0 {
		return
	}
	s.frames = append(s.frames, frame)
	l := w.link(t.name, s.peer)
	at := max(w.now()+w.frameDelay(l), s.last)
	s.last = at
	w.put(l.name[lockMessage], at-w.now(), func() { w.advance(s) })
}

// advance delivers the next frame of a session, or has it wait until that is
// possible, or until the epoch ends.
func (w *world) advance(s *session) {
	w.mu.Lock()
	s.arrived++
	blocked := s.blocked
	w.mu.Unlock()
	if !blocked {
		w.deliverFrames(s)
	}
}

func (w *world) deliverFrames(s *session) {
	o := w.target(s.peer)
	other := false // another one with the identity has the connections
	if h := w.holder(s.toID, s.peer); h != nil {
		o, other = h, o != h
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.blocked = false
	l := w.link(s.from.name, s.peer)
	for s.arrived > 0 && len(s.frames) > 0 {
		over := s.from.epoch != s.epoch || s.from.members == nil || !s.from.isAlive || o != nil && o.epoch > s.epoch
		wait := o == nil || other || l.cut > 0 || o.epoch < s.epoch || o.isStopped
		if over && w.opt.bug == "frames of old epochs are taken" && o != nil && o.epoch > s.epoch && l.cut == 0 && slices.Contains(o.members, s.fromID) {
			over, wait = false, other
		}
		if over {
			s.frames = nil
			return
		}
		if wait {
			s.blocked = true
			w.put(l.name[lockMessage], 20*ms, func() { w.deliverFrames(s) })
			return
		}
		frame := s.frames[0]
		s.frames = s.frames[1:]
		s.arrived--
		if !slices.Contains(o.members, s.fromID) || o.self != s.toID {
			continue
		}
		e := s.epoch
		if w.opt.bug == "frames of old epochs are taken" {
			e = o.epoch
		}
		w.mu.Unlock()
		lent := bytes.Clone(frame)
		if !o.engine.ReceiveNow(s.fromID, e, lent) {
			o.engine.Receive(s.fromID, e, frame)
		}
		for i := range lent { // nobody keeps it
			lent[i] = 0xff
		}
		w.mu.Lock()
	}
}
