package sim

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/dmxfs/dmxfs/locks"
)

// world is the state of one run.
type world struct {
	cfg    *Config
	now    Time
	agenda agenda
	nodes  []node
	links  []link // from*N+to
	ties   *rand.Rand
	jitter *rand.Rand
	turn   locks.Turn
	buf    []byte

	delay, cs, keep, end Time

	waiting int // nodes
	moving  int // messages and exits to come
	left    int // Light: requests to come
	obs     observer
	err     error
}

// node is a member: its machine, and the program that uses it.
type node struct {
	id       locks.NodeID
	index    int
	machine  Machine
	arrivals *rand.Rand
	modes    *rand.Rand

	state   state
	ticket  locks.TicketID // of the latest request
	mode    locks.Mode     // of that request
	issued  Time
	backlog int // Poisson: requests that came while there was one
	uses    int // of the CS, for expire
}

type state uint8

const (
	idle state = iota
	waits
	inCS
)

// link is what the next message of a channel must not come before.
type link struct {
	at  Time
	tie uint64
}

// Run is one simulation. It ends with an error when the configuration makes no
// sense, when ctx ends, or when the algorithm breaks a promise.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	w := newWorld(&cfg)
	w.begin()
	for n := 0; w.err == nil; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		at, e, ok := w.agenda.next()
		if !ok || at > w.end {
			break
		}
		w.now = at
		w.happen(e)
		if cfg.Load == Light && w.waiting == 0 && w.moving == 0 && w.left > 0 {
			w.left--
			w.request(&w.nodes[w.ties.IntN(cfg.active())])
		}
		if w.waiting > 0 && w.moving == 0 {
			w.fail("%d nodes wait, and nothing is under way", w.waiting)
		}
	}
	if w.err != nil {
		return nil, fmt.Errorf("%s, %d nodes, seed %d, at %v: %w", cfg.Algorithm.Name, cfg.Nodes, cfg.Seed, w.now.units(), w.err)
	}
	return w.obs.result(), nil
}

// Streams of the generators of one seed. Those of nodes are counted from
// streamNodes on.
const (
	streamTies = iota
	streamJitter
	streamNodes
)

func newWorld(cfg *Config) *world {
	w := &world{
		cfg:    cfg,
		nodes:  make([]node, cfg.Nodes),
		links:  make([]link, cfg.Nodes*cfg.Nodes),
		ties:   rand.New(rand.NewPCG(cfg.Seed, streamTies)),
		jitter: rand.New(rand.NewPCG(cfg.Seed, streamJitter)),
		delay:  fromUnits(cfg.Delay),
		cs:     fromUnits(cfg.CS),
		end:    endOfTime,
		obs:    newObserver(cfg),
	}
	if cfg.Keep <= maxDuration {
		w.keep = fromUnits(cfg.Keep)
	} else {
		w.keep = endOfTime
	}
	if cfg.Load == Poisson || cfg.Load == Closed {
		w.end = fromUnits(cfg.Duration)
	}
	members := make([]locks.NodeID, cfg.Nodes)
	for i := range members {
		members[i] = nodeID(i)
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.id, n.index = members[i], i
		n.arrivals = rand.New(rand.NewPCG(cfg.Seed, uint64(streamNodes+3*i)))
		n.modes = rand.New(rand.NewPCG(cfg.Seed, uint64(streamNodes+3*i+1)))
		n.machine = cfg.Algorithm.New(locks.Config{
			Key:  locks.Key{File: "simulated", Class: locks.Flock},
			View: &locks.View{Epoch: 1, Self: n.id, Members: members},
			Seed: rand.NewPCG(cfg.Seed, uint64(streamNodes+3*i+2)).Uint64(),
		}, cfg.Keep > 0)
	}
	return w
}

// nodeID is such that the order of names is that of numbers.
func nodeID(i int) locks.NodeID { return locks.NodeID(fmt.Sprintf("n%03d", i)) }

// nodeIndex is the inverse of nodeID, or -1.
func nodeIndex(id locks.NodeID) int {
	if len(id) != 4 || id[0] != 'n' {
		return -1
	}
	i := 0
	for _, c := range []byte(id[1:]) {
		if c < '0' || c > '9' {
			return -1
		}
		i = 10*i + int(c-'0')
	}
	return i
}

// begin puts the first requests on the agenda.
func (w *world) begin() {
	active := w.nodes[:w.cfg.active()]
	for i := range active {
		switch w.cfg.Load {
		case Burst:
			w.schedule(0, w.tie(), event{kind: arrival, node: i})
		case Poisson, Closed:
			w.scheduleArrival(i)
		}
	}
	if w.cfg.Load == Light {
		w.left = w.cfg.Requests - 1
		w.schedule(0, 0, event{kind: arrival, node: w.ties.IntN(len(active))})
	}
}

func (w *world) tie() uint64 { return w.ties.Uint64() >> (64 - tieBits) }

// schedule adds an event that comes after a span of time.
func (w *world) schedule(after Time, tie uint64, e event) {
	if after > endOfTime-w.now {
		w.fail("virtual time has run out")
		return
	}
	if e.kind == deliver || e.kind == exit {
		w.moving++
	}
	w.agenda.add(w.now+after, tie, e)
}

// scheduleArrival draws when a node's next request comes. One that comes after
// the end never does.
func (w *world) scheduleArrival(i int) {
	gap := w.nodes[i].arrivals.ExpFloat64() / w.cfg.Rate
	if gap <= w.cfg.Duration {
		w.schedule(fromUnits(gap), w.tie(), event{kind: arrival, node: i})
	}
}

// around is a span that varies by Jitter.
func (w *world) around(t Time) Time {
	if w.cfg.Jitter == 0 {
		return t
	}
	return t + Time((2*w.jitter.Float64()-1)*w.cfg.Jitter*float64(t))
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}
