package p2p_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/p2ptest"
)

var (
	simSeeds = flag.Int("p2p.seeds", long.Or(20, 40), "number of seeds of the simulation")
	simSeed  = flag.Uint64("p2p.seed", 0, "only this seed of the simulation, if not 0")
)

// TestSessionsUnderFaults lets some nodes send to each other while links are
// cut, connections break, nodes start again and epochs change at random, and checks guarantee 1
// to 3 of the lock channel at every frame: in order, each once, in the epoch
// in which it was sent. After the last fault everything that was sent in the
// last epoch arrives.
func TestSessionsUnderFaults(t *testing.T) {
	first, last := uint64(1), uint64(*simSeeds)
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
			if t.Failed() {
				t.Logf("again: go test ./p2p -run TestSessionsUnderFaults -p2p.seed %d", seed)
			}
		})
	}
}

type sim struct {
	t     *testing.T
	rand  *rand.Rand
	net   *p2ptest.Network
	nodes []*simNode
	infos []peer.AddrInfo
	views map[locks.Epoch][]locks.NodeID
	last  locks.Epoch // the greatest in views

	mu    sync.Mutex
	slow  *rand.Rand        // for handlers; rand is for the one that makes the steps
	sent  map[flight]uint64 // number of frames that were sent
	got   map[flight]uint64 // and that came
	total int
}

// flight is one session.
type flight struct {
	epoch    locks.Epoch
	from, to locks.NodeID
}

// simNode is one incarnation of a node.
type simNode struct {
	*p2p.Transport
	name  locks.NodeID
	inc   uint64
	epoch locks.Epoch // 0 if it has no view
	stop  func()
}

func simulate(t *testing.T, seed uint64) {
	s := &sim{
		t:     t,
		rand:  rand.New(rand.NewPCG(seed, 1)),
		slow:  rand.New(rand.NewPCG(seed, 2)),
		net:   p2ptest.New(seed, p2ptest.Link{Latency: 50 * time.Microsecond, Jitter: 3 * time.Millisecond}),
		views: make(map[locks.Epoch][]locks.NodeID),
		sent:  make(map[flight]uint64),
		got:   make(map[flight]uint64),
	}
	n := 2 + s.rand.IntN(3)
	for i := range n {
		s.infos = append(s.infos, peer.AddrInfo{ID: p2ptest.PeerID(i)})
		s.nodes = append(s.nodes, nil)
	}
	for i := range n {
		s.start(i, 1)
	}
	for range 300 {
		s.step()
		time.Sleep(time.Duration(s.rand.Int64N(int64(50 * time.Millisecond))))
	}
	// All is well again: one epoch on all nodes, and everything in it comes.
	for i := range n {
		for j := range n {
			s.net.Heal(p2ptest.PeerID(i), p2ptest.PeerID(j))
		}
	}
	s.newView()
	for i := range n {
		s.enter(i)
		s.send(i, 5)
	}
	time.Sleep(time.Minute)
	s.mu.Lock()
	for f, sent := range s.sent {
		if f.epoch == s.last && s.got[f] != sent {
			t.Errorf("epoch %d, %s to %s: %d frames were sent and %d came", f.epoch, f.from, f.to, sent, s.got[f])
		}
	}
	if s.total == 0 {
		t.Error("no frame came at all")
	}
	s.mu.Unlock()
	for _, x := range s.nodes {
		x.stop()
	}
}

// start starts an incarnation of node i.
func (s *sim) start(i int, inc uint64) {
	e := s.net.Endpoint(p2ptest.PeerID(i))
	x := &simNode{name: p2p.NodeID(e.ID(), inc), inc: inc}
	x.Transport = p2p.NewTransport(e, p2p.Handlers{
		Member: func(peer.ID, []byte) {},
		Lock:   func(from locks.NodeID, e locks.Epoch, frame []byte) { s.deliver(x.name, from, e, frame) },
	}, simLog(s.t, i))
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- x.Run(ctx) }()
	x.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
	x.SetWanted(s.infos)
	s.nodes[i] = x
}

// step does one thing that may happen at any time.
func (s *sim) step() {
	i, j := s.rand.IntN(len(s.nodes)), s.rand.IntN(len(s.nodes))
	a, b := p2ptest.PeerID(i), p2ptest.PeerID(j)
	switch k := s.rand.IntN(1000); {
	case k < 700:
		s.send(i, 1+s.rand.IntN(20))
	case k < 780:
		s.net.Break(a, b)
	case k < 840:
		s.net.Cut(a, b)
	case k < 955:
		s.net.Heal(a, b)
	case k < 965:
		s.nodes[i].stop()
		s.start(i, s.nodes[i].inc+1)
	case k < 970:
		s.nodes[i].DropView()
		s.nodes[i].epoch = 0
	default:
		// A node enters the newest view, or one that it makes itself.
		if s.nodes[i].epoch == s.last || !slices.Contains(s.views[s.last], s.nodes[i].name) {
			s.newView()
		}
		s.enter(i)
	}
}

func (s *sim) newView() {
	s.last++
	for _, n := range s.nodes {
		s.views[s.last] = append(s.views[s.last], n.name)
	}
}

func (s *sim) enter(i int) {
	n := s.nodes[i]
	if n.epoch == s.last {
		return
	}
	if err := n.SetView(s.last, n.name, s.views[s.last]); err != nil {
		// It was in this view before, and has dropped it.
		s.newView()
		if err := n.SetView(s.last, n.name, s.views[s.last]); err != nil {
			s.t.Error(err)
		}
	}
	n.epoch = s.last
}

// send sends to all other members of the view that node i is in.
func (s *sim) send(i, count int) {
	n := s.nodes[i]
	for _, to := range s.views[n.epoch] {
		if to == n.name {
			continue
		}
		for range count {
			f := flight{n.epoch, n.name, to}
			s.mu.Lock()
			s.sent[f]++
			frame := binary.BigEndian.AppendUint64(nil, uint64(f.epoch))
			frame = binary.BigEndian.AppendUint64(frame, s.sent[f])
			frame = append(frame, n.name...)
			frame = append(frame, make([]byte, s.rand.IntN(2000))...)
			s.mu.Unlock()
			if err := n.Send(n.epoch, to, frame); err != nil {
				s.t.Error(err)
			}
		}
	}
}

func (s *sim) deliver(to, from locks.NodeID, e locks.Epoch, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slow.IntN(20) == 0 { // the engine is busy
		d := time.Duration(s.slow.Int64N(int64(20 * time.Millisecond)))
		s.mu.Unlock()
		time.Sleep(d)
		s.mu.Lock()
	}
	f := flight{e, from, to}
	epoch, seq := locks.Epoch(binary.BigEndian.Uint64(frame)), binary.BigEndian.Uint64(frame[8:])
	switch {
	case !strings.HasPrefix(string(frame[16:]), string(from)):
		s.t.Errorf("%v: a frame of another sender", f)
	case epoch != e:
		s.t.Errorf("%v: a frame of epoch %d", f, epoch)
	case seq != s.got[f]+1:
		s.t.Errorf("%v: frame %d came after %d", f, seq, s.got[f])
	}
	s.got[f] = seq
	s.total++
}

// simLog is the log of a node, shown when a single seed is run with -v.
func simLog(t *testing.T, node int) *slog.Logger {
	if *simSeed == 0 || !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("on", node)
}
