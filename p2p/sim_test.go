package p2p_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"dmxfs/locks"
	"dmxfs/p2p"
	"dmxfs/p2p/p2ptest"
)

var (
	simSeeds = flag.Int("p2p.seeds", 40, "number of seeds of the simulation")
	simSeed  = flag.Uint64("p2p.seed", 0, "only this seed of the simulation, if not 0")
)

// TestSessionsUnderFaults lets some nodes send to each other while links are
// cut, connections break and epochs change at random, and checks guarantee 1
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

	mu    sync.Mutex
	slow  *rand.Rand        // for handlers; s.rand is for the one that makes the steps
	sent  map[flight]uint64 // number of frames that were sent
	got   map[flight]uint64 // and that came
	epoch []locks.Epoch     // of each node
	total int
}

// flight is one session.
type flight struct {
	epoch    locks.Epoch
	from, to int
}

type simNode struct {
	*p2p.Transport
	name locks.NodeID
}

func simulate(t *testing.T, seed uint64) {
	s := &sim{
		t:    t,
		rand: rand.New(rand.NewPCG(seed, 1)),
		slow: rand.New(rand.NewPCG(seed, 2)),
		net:  p2ptest.New(seed, p2ptest.Link{Latency: 50 * time.Microsecond, Jitter: 3 * time.Millisecond}),
		sent: make(map[flight]uint64),
		got:  make(map[flight]uint64),
	}
	n := 2 + s.rand.IntN(3)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var infos []peer.AddrInfo
	for i := range n {
		e := s.net.Endpoint(p2ptest.PeerID(i))
		tr := p2p.NewTransport(e, p2p.Handlers{
			Member: func(peer.ID, []byte) {},
			Lock:   func(from locks.NodeID, e locks.Epoch, frame []byte) { s.deliver(i, from, e, frame) },
		}, simLog(t, i))
		s.nodes = append(s.nodes, &simNode{tr, p2p.NodeID(e.ID(), uint64(i))})
		s.epoch = append(s.epoch, 0)
		infos = append(infos, peer.AddrInfo{ID: e.ID()})
		wg.Go(func() {
			if err := tr.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for _, x := range s.nodes {
		x.SetWanted(infos)
	}
	for range 300 {
		s.step()
		time.Sleep(time.Duration(s.rand.Int64N(int64(50 * time.Millisecond))))
	}
	// All is well again: the last epoch on all nodes, and everything in it comes.
	for i := range n {
		for j := range n {
			s.net.Heal(p2ptest.PeerID(i), p2ptest.PeerID(j))
		}
	}
	e := slices.Max(s.epoch)
	for i := range n {
		if s.epoch[i] < e {
			s.enter(i, e)
		}
	}
	for i := range n {
		s.send(i, 5)
	}
	time.Sleep(time.Minute)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		for j := range n {
			if f := (flight{e, i, j}); i != j && s.got[f] != s.sent[f] {
				t.Errorf("epoch %d, %d to %d: %d frames were sent and %d came", e, i, j, s.sent[f], s.got[f])
			}
		}
	}
	if s.total == 0 {
		t.Error("no frame came at all")
	}
}

// step does one thing that may happen at any time.
func (s *sim) step() {
	i, j := s.rand.IntN(len(s.nodes)), s.rand.IntN(len(s.nodes))
	a, b := p2ptest.PeerID(i), p2ptest.PeerID(j)
	switch k := s.rand.IntN(100); {
	case k < 70:
		s.send(i, 1+s.rand.IntN(20))
	case k < 78:
		s.net.Break(a, b)
	case k < 84:
		s.net.Cut(a, b)
	case k < 96:
		s.net.Heal(a, b)
	default:
		// A node enters the newest epoch, or begins one.
		e := slices.Max(s.epoch)
		if s.epoch[i] == e {
			e++
		}
		s.enter(i, e)
	}
}

func (s *sim) enter(i int, e locks.Epoch) {
	var members []locks.NodeID
	for _, n := range s.nodes {
		members = append(members, n.name)
	}
	if err := s.nodes[i].SetView(e, s.nodes[i].name, members); err != nil {
		s.t.Error(err)
	}
	s.epoch[i] = e
}

func (s *sim) send(i, count int) {
	e := s.epoch[i]
	if e == 0 {
		return
	}
	for j, n := range s.nodes {
		if j == i {
			continue
		}
		for range count {
			s.mu.Lock()
			f := flight{e, i, j}
			s.sent[f]++
			frame := make([]byte, 24+s.rand.IntN(2000))
			binary.BigEndian.PutUint64(frame, uint64(e))
			binary.BigEndian.PutUint64(frame[8:], uint64(i))
			binary.BigEndian.PutUint64(frame[16:], s.sent[f])
			s.mu.Unlock()
			if err := s.nodes[i].Send(e, n.name, frame); err != nil {
				s.t.Error(err)
			}
		}
	}
}

func (s *sim) deliver(to int, from locks.NodeID, e locks.Epoch, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slow.IntN(20) == 0 { // the engine is busy
		d := time.Duration(s.slow.Int64N(int64(20 * time.Millisecond)))
		s.mu.Unlock()
		time.Sleep(d)
		s.mu.Lock()
	}
	f := flight{
		epoch: locks.Epoch(binary.BigEndian.Uint64(frame)),
		from:  int(binary.BigEndian.Uint64(frame[8:])),
		to:    to,
	}
	seq := binary.BigEndian.Uint64(frame[16:])
	switch {
	case s.nodes[f.from].name != from:
		s.t.Errorf("a frame of %d came as one of %s", f.from, from)
	case f.epoch != e:
		s.t.Errorf("a frame of epoch %d came in epoch %d", f.epoch, e)
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
