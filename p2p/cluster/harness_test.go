package cluster_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/p2ptest"
	"github.com/dmxfs/dmxfs/p2p/register"
	"github.com/dmxfs/dmxfs/p2p/register/registertest"
)

var clusterID = strings.Repeat("c", 32)

// world is a cluster under virtual time: drivers with the real machine and the
// real transport, over a network and a register in memory, each with an engine
// that writes down what it is told.
type world struct {
	t      *testing.T
	net    *p2ptest.Network
	shared *registertest.Shared
	nodes  []*node
	closed chan struct{} // ends what hangs, at the end of the test

	mu       sync.Mutex
	contacts []member.Contact // of all nodes
}

// inWorld runs a test in a bubble of virtual time.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t:      t,
			net:    p2ptest.New(1, p2ptest.Link{Latency: 200 * time.Microsecond, Jitter: time.Millisecond}),
			shared: registertest.NewShared(),
			closed: make(chan struct{}),
		}
		f(w)
		close(w.closed)
		for _, n := range w.nodes {
			n.kill()
		}
		w.shared.Wait()
	})
}

// node is one daemon, as far as it concerns the membership.
type node struct {
	w         *world
	name      string
	id        peer.ID
	transport *p2p.Transport
	*cluster.Node
	engine *engine
	reg    *registertest.Register
	log    *logBuffer
	ended  chan error // the result of Run
	stop   func()

	// What can be blocked, until the gate is closed.
	storage, save, notice, want, receive, state hook
	sendSync                                    func() error

	adapt func(*member.Config)      // before it is started
	claim func([]member.Node) error // cluster.Options.Claim

	stopped hook // the whole process: its clock is asked before every step
	faults  atomic.Pointer[func(member.Op) registertest.Fault]

	mu      sync.Mutex
	saved   []member.Saved
	saveErr error
	notices []member.Notice
	static  []member.Contact
	wanted  []member.Contact
	revoked []string
	online  bool
}

// gate holds up who passes it until it is closed.
type gate chan struct{}

// hook is a place where a test can put a gate.
type hook struct{ g atomic.Pointer[gate] }

func (h *hook) set(g gate) { h.g.Store(&g) }

func (h *hook) pass(w *world) {
	if g := h.g.Load(); g != nil {
		select {
		case <-*g:
		case <-w.closed:
		}
	}
}

// add makes a node that is not started yet.
func (w *world) add() *node {
	i := len(w.nodes)
	n := &node{w: w, name: string(rune('a' + i)), id: p2ptest.PeerID(i), ended: make(chan error, 1), log: new(logBuffer)}
	n.engine = &engine{n: n}
	n.reg = &registertest.Register{Shared: w.shared, Closed: w.closed, Fault: func(op member.Op) registertest.Fault {
		if f := n.faults.Load(); f != nil {
			return (*f)(op)
		}
		return registertest.Fault{Before: time.Millisecond, After: time.Millisecond}
	}}
	w.nodes = append(w.nodes, n)
	w.mu.Lock()
	w.contacts = append(w.contacts, member.Contact{Peer: n.id.String(), Addrs: []string{"/memory/" + n.name}})
	w.mu.Unlock()
	return n
}

// start starts nodes and waits until all of the world's are together.
func (w *world) start(count int) []*node {
	w.t.Helper()
	for range count {
		w.add().start()
	}
	w.await("all nodes together", 5*time.Second, func() bool { return w.together(w.nodes...) })
	return w.nodes
}

func (n *node) start() {
	w := n.w
	seed := uint64(len(n.name)) + uint64(n.name[0])
	c := member.Config{
		Params: member.Default(), Cluster: clusterID,
		Self:   member.Member{Node: member.Node{Peer: n.id.String()}, Host: n.name, Addrs: []string{"/memory/" + n.name}},
		Random: func() uint64 { seed = seed*6364136223846793005 + 1; return seed },
		Made:   func() string { return "2026-01-01T00:00:00Z" },
	}
	if n.adapt != nil {
		n.adapt(&c)
	}
	m, err := member.New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	endpoint := w.net.Endpoint(n.id)
	n.transport = p2p.NewTransport(endpoint, p2p.Handlers{
		Member: func(from peer.ID, b []byte) {
			n.receive.pass(w)
			if err := n.Message(from.String(), b); err != nil {
				n.log.line("refused: " + err.Error())
			}
		},
		Lock: func(locks.NodeID, locks.Epoch, []byte) {},
		Sync: func(from locks.NodeID, e locks.Epoch, s []byte) { n.State(context.Background(), from, e, s) },
	}, slog.New(slog.DiscardHandler))
	n.Node = cluster.New(cluster.Options{
		Self: n.id.String(), Cluster: clusterID, Machine: m, Params: member.Default(),
		Transport: (*transport)(n), Storage: (*storage)(n),
		Now:    n.clock,
		Fence:  func(context.Context, member.Fence) error { return nil },
		Save:   n.keep,
		Claim:  n.claim,
		Notice: n.note,
		Static: n.contacts,
		Begin:  func(v *member.View) { n.engine.call("begin %d", v.Epoch) },
		Log:    slog.New(slog.NewTextHandler(n.log, nil)),
	})
	n.Bind(n.engine)
	ctx, cancel := context.WithCancel(context.Background())
	netCtx, netCancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.transport.Run(netCtx) })
	running.Go(func() {
		n.ended <- n.Run(ctx)
	})
	n.stop = sync.OnceFunc(func() {
		cancel()
		netCancel()
		running.Wait()
	})
}

func (n *node) clock() int64 {
	n.stopped.pass(n.w)
	return time.Now().UnixMilli()
}

// kill ends the process.
func (n *node) kill() {
	if n.stop != nil {
		n.stop()
	}
}

func (n *node) keep(s member.Saved) error {
	n.save.pass(n.w)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.saveErr == nil {
		n.saved = append(n.saved, s)
	}
	return n.saveErr
}

func (n *node) note(x member.Notice) {
	n.notice.pass(n.w)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notices = append(n.notices, x)
}

func (n *node) noticed(k member.NoticeKind) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, x := range n.notices {
		if x.Kind == k {
			count++
		}
	}
	return count
}

// contacts are the others of the world: they find each other by this alone.
func (n *node) contacts() []member.Contact {
	n.mu.Lock()
	list := slices.Clone(n.static)
	n.mu.Unlock()
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return append(list, n.w.contacts...)
}

// transport is the node as the driver speaks through it.
type transport node

func (t *transport) SetView(e locks.Epoch, self locks.NodeID, members []locks.NodeID) error {
	return t.transport.SetView(e, self, members)
}
func (t *transport) DropView() { t.transport.DropView() }
func (t *transport) Member(to string, b []byte) {
	if id, err := peer.Decode(to); err == nil {
		t.transport.SendMember(id, b)
	}
}
func (t *transport) SendSync(ctx context.Context, to locks.NodeID, e locks.Epoch, s []byte) error {
	if f := t.sendSync; f != nil {
		if err := f(); err != nil {
			return err
		}
	}
	return t.transport.SendSync(ctx, to, e, s)
}
func (t *transport) Want(list []member.Contact, revoked []string) {
	t.want.pass(t.w)
	t.mu.Lock()
	t.wanted, t.revoked = list, revoked
	t.mu.Unlock()
	var infos []peer.AddrInfo
	for _, c := range list {
		if id, err := peer.Decode(c.Peer); err == nil {
			infos = append(infos, peer.AddrInfo{ID: id})
		}
	}
	t.transport.SetWanted(infos)
}

func (t *transport) Online(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.online = on
}

type storage node

func (s *storage) Do(op member.Op) (member.Look, error) {
	s.storage.pass(s.w)
	done := register.Do(s.reg, op, (*node)(s).clock)
	return done.Look, done.Err
}

// grants reports whether the engine may grant: it has the states of all, and
// the node is live.
func (n *node) grants() bool {
	n.engine.mu.Lock()
	ok := n.engine.view != nil && !n.engine.frozen && n.engine.told != nil
	n.engine.mu.Unlock()
	return ok && n.Live(0)
}

func (n *node) epoch() locks.Epoch {
	if v := n.Status().View; v != nil {
		return v.Epoch
	}
	return 0
}

// lost is for what reasons the node was told that its locks are lost.
func (n *node) lost() []string {
	n.engine.mu.Lock()
	defer n.engine.mu.Unlock()
	return slices.Clone(n.engine.lost)
}

func (n *node) resumes() int {
	n.engine.mu.Lock()
	defer n.engine.mu.Unlock()
	return n.engine.resumed
}

func (n *node) ioResumes() int {
	n.engine.mu.Lock()
	defer n.engine.mu.Unlock()
	return n.engine.resumedIO
}

// isClosed reports whether the test is over.
func (n *node) isClosed() bool {
	select {
	case <-n.w.closed:
		return true
	default:
		return false
	}
}

// together reports whether these nodes, and no others, are one view and grant.
func (w *world) together(nodes ...*node) bool {
	for _, n := range nodes {
		v := n.Status().View
		if !n.grants() || n.epoch() != nodes[0].epoch() || len(v.Members) != len(nodes) {
			return false
		}
	}
	return true
}

// await waits for a state, in virtual time.
func (w *world) await(what string, limit time.Duration, done func() bool) {
	w.t.Helper()
	for end := time.Now().Add(limit); !done(); {
		if time.Now().After(end) {
			for _, n := range w.nodes {
				if n.Node != nil {
					s := n.Status()
					w.t.Logf("%s: %v at %v, live %v, %s%s", n.name, s.State, s.View, s.Live, s.Why, s.Disk)
				}
			}
			w.t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(10 * time.Millisecond)
	}
	synctest.Wait()
}

// hold checks that something stays as it is for d, and at most one epoch is
// live meanwhile.
func (w *world) hold(what string, d time.Duration, ok func() bool) {
	w.t.Helper()
	for from := time.Now(); time.Since(from) < d; {
		if !ok() {
			w.t.Fatalf("%s: not any more after %v", what, time.Since(from))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// cut cuts all links between two sides, both ways.
func (w *world) cut(a, b []*node) { w.each(a, b, w.net.Cut) }

func (w *world) heal(a, b []*node) { w.each(a, b, w.net.Heal) }

func (w *world) each(a, b []*node, f func(from, to peer.ID)) {
	for _, x := range a {
		for _, y := range b {
			f(x.id, y.id)
			f(y.id, x.id)
		}
	}
}

// logBuffer is a log that a test can read.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) line(s string) { _, _ = l.Write([]byte(s + "\n")) }

func (l *logBuffer) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), s)
}
