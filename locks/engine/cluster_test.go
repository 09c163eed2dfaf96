package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/maekawa"
	"github.com/dmxfs/dmxfs/locks/rcv"
	"github.com/dmxfs/dmxfs/locks/ring"
	"github.com/dmxfs/dmxfs/locks/rw"
)

// net is a cluster of engines in one process, under virtual time. Frames take
// delay; each pair of nodes has one ordered channel.
type net struct {
	t     *testing.T
	ctx   context.Context // ends with the test, also for what begins after that
	mu    sync.Mutex
	nodes map[locks.NodeID]*node // written by the test only, with mu
	delay time.Duration          // guarded by mu, as is sent
	epoch locks.Epoch
	sent  int
	// exclusive, if not empty, is the first name of paths that ring serves;
	// rules are new since the last view.
	exclusive atomic.Pointer[string]
	newRules  bool
	// tune, if set, changes the options of nodes to come; twist the frames that
	// are sent.
	tune  func(*Options)
	twist func(frame []byte) []byte
	// ledgers: nodes to come keep one.
	ledgers bool
	// jitter, if set, is what frames take longer than delay; called under mu.
	jitter func() time.Duration
}

// node is one engine with what is around it.
type node struct {
	*Engine
	net     *net
	id      locks.NodeID
	stop    context.CancelFunc
	dead    atomic.Bool // not live
	crowded atomic.Bool // see Pacer
	sick    atomic.Pointer[error]
	queue   map[locks.NodeID]chan delivery

	mu       sync.Mutex
	events   []Event
	flushes  []locks.Key
	refreshs []locks.Key
	expelled int
	wishes   map[locks.Key]int
	onFlush  func(locks.Key) error
	refresh  func(locks.Key) error
	onClean  func(locks.Key) bool

	written atomic.Bool // what programs wrote is written out already

	ledger *mortal // nil: it keeps none
}

type delivery struct {
	epoch locks.Epoch
	frame []byte
	at    time.Time
}

// allAlgorithms are those that rules can name.
var allAlgorithms = map[string]*locks.Algorithm{
	"rw": &rw.Algorithm, "rcv": &rcv.Algorithm, "maekawa": &maekawa.Algorithm, "ring": &ring.Algorithm,
}

// nodeID is the name of the i-th node.
func nodeID(i int) locks.NodeID { return locks.NodeID(fmt.Sprintf("n%d", i)) }

// nodeIDs are the names of the first n.
func nodeIDs(n int) (ids []locks.NodeID) {
	for i := range n {
		ids = append(ids, nodeID(i))
	}
	return ids
}

var three = nodeIDs(3)

// newNet makes nodes n0, n1, … and their first view. Call it in a synctest
// bubble.
func newNet(t *testing.T, n int) *net { return newTuned(t, n, nil) }

// newTuned is newNet with other options.
func newTuned(t *testing.T, n int, tune func(*Options)) *net {
	return newKeeping(t, n, false, tune)
}

// newKeeping is newTuned with nodes that keep ledgers.
func newKeeping(t *testing.T, n int, ledgers bool, tune func(*Options)) *net {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c := &net{t: t, ctx: ctx, nodes: map[locks.NodeID]*node{}, delay: time.Millisecond, tune: tune, ledgers: ledgers}
	ids := nodeIDs(n)
	for _, id := range ids {
		c.add(id)
	}
	c.view(ids...)
	return c
}

func (c *net) add(id locks.NodeID) locks.NodeID {
	ctx, stop := context.WithCancel(context.Background())
	n := &node{net: c, id: id, stop: stop, queue: map[locks.NodeID]chan delivery{}}
	o := Options{
		Transport: n, Files: n, Recorder: n, Log: slog.New(slog.NewTextHandler(testWriter{c.t}, nil)),
		Algorithms: allAlgorithms,
		Rule:       c.rule,
		Live:       func(time.Duration) bool { return !n.dead.Load() },
		Guard:      time.Millisecond,
		Jitter:     func() float64 { return 0.5 },
	}
	if c.ledgers {
		n.ledger = newMortal(c.t)
		o.Ledger = n.ledger
	}
	if c.tune != nil {
		c.tune(&o)
	}
	n.Engine = New(o)
	if n.ledger != nil {
		c.t.Cleanup(func() {
			n.Engine.mu.Lock()
			n.ledger.dead = true
			n.Engine.mu.Unlock()
			n.ledger.Close()
		})
	}
	go n.Run(ctx)
	c.mu.Lock()
	c.nodes[id] = n
	c.mu.Unlock()
	c.t.Cleanup(stop)
	return id
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// view installs the next epoch at all named nodes, each being told the states
// of all.
func (c *net) view(ids ...locks.NodeID) {
	c.epoch++
	states := map[locks.NodeID][]byte{}
	for _, id := range ids {
		c.nodes[id].Freeze()
		if c.newRules {
			c.nodes[id].NewRules()
		}
	}
	c.newRules = false
	for _, id := range ids {
		c.nodes[id].Install(&locks.View{Epoch: c.epoch, Self: id, Members: ids})
	}
	for _, id := range ids {
		states[id] = c.nodes[id].State()
	}
	for _, id := range ids {
		for _, from := range ids {
			if err := c.nodes[id].Sync(from, c.epoch, states[from]); err != nil {
				c.t.Errorf("Sync: %v", err)
			}
		}
	}
}

// Send is Transport.
func (n *node) Send(epoch locks.Epoch, to locks.NodeID, frame []byte) {
	n.net.mu.Lock()
	if n.ledger.isDead() {
		n.net.mu.Unlock()
		return
	}
	n.net.sent++
	if n.net.twist != nil {
		frame = n.net.twist(frame)
	}
	q := n.queue[to]
	if q == nil {
		q = make(chan delivery, 1<<10)
		n.queue[to] = q
		ctx := n.net.ctx
		go func() {
			for {
				select {
				case d := <-q:
					// No timer that is due at once: it is served by who
					// receives from it, and when two goroutines of a bubble do
					// so together the race detector of Go 1.26 breaks (they
					// share its record of the timers).
					if wait := time.Until(d.at); wait > 0 {
						select {
						case <-time.After(wait):
						case <-ctx.Done():
							return
						}
					}
					n.net.mu.Lock()
					r := n.net.nodes[to]
					n.net.mu.Unlock()
					if r != nil {
						receive(r.Engine, n.id, d.epoch, d.frame)
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	at := time.Now().Add(n.net.delay)
	if n.net.jitter != nil {
		at = at.Add(n.net.jitter())
	}
	n.net.mu.Unlock()
	q <- delivery{epoch, frame, at}
}

// Flush, Refresh and Expelled are Files, and Clean is Cleaner.
func (n *node) Flush(k locks.Key) error {
	n.mu.Lock()
	n.flushes = append(n.flushes, k)
	f := n.onFlush
	n.mu.Unlock()
	if f != nil {
		return f(k)
	}
	return nil
}

func (n *node) Refresh(k locks.Key) error {
	n.mu.Lock()
	n.refreshs = append(n.refreshs, k)
	f := n.refresh
	n.mu.Unlock()
	if f != nil {
		return f(k)
	}
	return nil
}

func (n *node) Clean(k locks.Key) bool {
	if n.onClean != nil {
		return n.onClean(k)
	}
	return n.written.Load()
}

func (n *node) Expelled() {
	n.mu.Lock()
	n.expelled++
	n.mu.Unlock()
}

// Record and Healthy are Recorder.
func (n *node) Record(ev Event) {
	n.mu.Lock()
	if len(n.events) > 0 && ev.Time.Before(n.events[len(n.events)-1].Time) || ev.Time.IsZero() {
		panic(fmt.Sprintf("engine: an event of %v behind that of request %d", ev.Time, ev.Request))
	}
	n.events = append(n.events, ev)
	n.mu.Unlock()
}

func (n *node) Healthy() error {
	if e := n.sick.Load(); e != nil {
		return *e
	}
	return nil
}

// Pace and Crowded are Pacer.
func (n *node) Pace(bool)     {}
func (n *node) Crowded() bool { return n.crowded.Load() }

func (n *node) steps() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := ""
	for i, ev := range n.events {
		if i > 0 {
			s += " "
		}
		s += ev.Step.String()
		if ev.Final {
			s += "."
		}
	}
	return s
}

func (n *node) counts() (flushes, refreshs int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.flushes), len(n.refreshs)
}

func part(from, to uint64) locks.Range { return locks.Range{Start: from, End: to} }

// req is a request on file f.
func req(c locks.Class, owner int, m locks.Mode, r locks.Range) *locks.Request {
	return &locks.Request{
		Key: locks.Key{File: "f", Class: c}, Path: "f", Owner: locks.OwnerID(owner), Handle: locks.HandleID(owner),
		Mode: m, Range: r, Program: locks.Program{PID: 1000 + owner, Command: fmt.Sprintf("p%d", owner)},
	}
}

// pending is a Lock that is under way.
type pending struct {
	cancel chan struct{}
	done   chan struct{}
	grant  locks.Grant
	err    error
}

func (n *node) start(r *locks.Request) *pending {
	p := &pending{cancel: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.grant, p.err = n.Lock(p.cancel, r)
	}()
	return p
}

// is reports whether p has ended.
func (p *pending) is() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// try is Lock with Try, for tests in which it must end.
func (n *node) try(r *locks.Request) (locks.Grant, error) {
	c := *r
	c.Try = true
	p := n.start(&c)
	<-p.done
	return p.grant, p.err
}

// rule is Options.Rule. An exclusive algorithm serves the paths that begin with
// its name.
func (c *net) rule(path string) string {
	first, _, _ := strings.Cut(path, "/")
	if slices.Contains(exclusives, first) {
		return first
	}
	if x := c.exclusive.Load(); x != nil && first == *x {
		return "ring"
	}
	return "rw"
}

// rules makes ring serve paths that begin with first, from the next view on.
func (c *net) rules(first string) {
	c.exclusive.Store(&first)
	c.newRules = true
}

func (c *net) check() {
	for _, n := range c.nodes {
		n.Engine.mu.Lock()
		for _, en := range n.entries.all {
			if err := en.machine.Check(); err != nil {
				c.t.Errorf("%s %v: %v", n.id, en.key, err)
			}
		}
		n.Engine.mu.Unlock()
	}
}

// isIdle checks that the nodes have forgotten all files.
func (c *net) isIdle() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.Engine.mu.Lock()
		for k, en := range n.entries.all {
			c.t.Errorf("%s keeps %v by %s: %v, dirty %v, barrier %v, idle %v", n.id, k, en.alg.Name, en.machine, en.dirty, en.barrier, en.idle != nil)
		}
		n.Engine.mu.Unlock()
	}
}

func mustGrant(t *testing.T, p *pending) locks.Grant {
	t.Helper()
	<-p.done
	if p.err != nil {
		t.Fatalf("not granted: %v", p.err)
	}
	return p.grant
}

func mustWait(t *testing.T, p *pending) {
	t.Helper()
	time.Sleep(5 * time.Second)
	if p.is() {
		t.Fatalf("it did not wait: %+v %v", p.grant, p.err)
	}
}

func mustFail(t *testing.T, p *pending, want error) {
	t.Helper()
	time.Sleep(time.Second)
	if !p.is() || !errors.Is(p.err, want) {
		t.Fatalf("%v, want %v", p.err, want)
	}
}

// at is q by another path.
func at(path string, q *locks.Request) *locks.Request {
	c := *q
	c.Path = path
	return &c
}

// algorithms are those of the steps of a kind that a node has recorded.
func (n *node) algorithms(s Step) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, ev := range n.events {
		if ev.Step == s {
			out = append(out, ev.Algorithm)
		}
	}
	return strings.Join(out, " ")
}
