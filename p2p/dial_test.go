package p2p_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/p2ptest"
)

// counted counts dials, and fails those to peers without an address, which the
// network in memory does not know.
type counted struct {
	p2p.Network
	mu    sync.Mutex
	dials []time.Time
	opens int
	addrs map[peer.ID]int
	ev    p2p.Events
}

func (c *counted) Run(ctx context.Context, ev p2p.Events) error {
	c.mu.Lock()
	c.ev = ev
	c.mu.Unlock()
	return c.Network.Run(ctx, ev)
}

func (c *counted) Open(ctx context.Context, p peer.ID, proto protocol.ID) (p2p.Stream, error) {
	c.mu.Lock()
	c.opens++
	c.mu.Unlock()
	return c.Network.Open(ctx, p, proto)
}

func (c *counted) SetAddrs(p peer.AddrInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addrs[p.ID] = len(p.Addrs)
}

func (c *counted) Connect(ctx context.Context, p peer.ID) error {
	c.mu.Lock()
	c.dials = append(c.dials, time.Now())
	known := c.addrs[p] > 0
	c.mu.Unlock()
	if !known {
		return p2p.ErrNoAddress
	}
	return c.Network.Connect(ctx, p)
}

func (c *counted) since(t time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.dials {
		if at.After(t) {
			n++
		}
	}
	return n
}

var anywhere = []ma.Multiaddr{ma.StringCast("/ip4/192.0.2.1/tcp/1")}

// withDialer runs f with a node that wants a peer, which does not run yet.
func withDialer(t *testing.T, f func(t *testing.T, a *p2p.Transport, c *counted, b peer.ID, run func())) {
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.New(1, p2ptest.Link{Latency: time.Millisecond})
		c := &counted{Network: net.Endpoint(p2ptest.PeerID(0)), addrs: make(map[peer.ID]int)}
		quiet := p2p.Handlers{Member: func(peer.ID, []byte) {}}
		a := p2p.NewTransport(c, quiet, nil)
		e := net.Endpoint(p2ptest.PeerID(1))
		b := p2p.NewTransport(e, quiet, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		run := func(tr *p2p.Transport) {
			wg.Go(func() {
				if err := tr.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		run(a)
		f(t, a, c, e.ID(), func() { run(b) })
	})
}

func connected(a *p2p.Transport) bool { return len(a.Peers()) == 1 && a.Peers()[0].Connected }

func TestDialsGetRareForPeersThatAreGone(t *testing.T) {
	withDialer(t, func(t *testing.T, a *p2p.Transport, c *counted, b peer.ID, run func()) {
		a.SetWanted([]peer.AddrInfo{{ID: b, Addrs: anywhere}})
		start := time.Now()
		time.Sleep(10 * time.Second)
		if n := c.since(start); n < 15 || n > 30 {
			t.Errorf("%d dials in the first ten seconds", n)
		}
		time.Sleep(10 * time.Minute)
		if n := c.since(time.Now().Add(-time.Minute)); n < 2 || n > 6 {
			t.Errorf("%d dials a minute after ten minutes", n)
		}
		run()
		time.Sleep(20 * time.Second)
		if !connected(a) {
			t.Error("the peer is back, and not found")
		}
	})
}

func TestWhatThereIsToSayMakesDialsFrequent(t *testing.T) {
	withDialer(t, func(t *testing.T, a *p2p.Transport, c *counted, b peer.ID, run func()) {
		a.SetWanted([]peer.AddrInfo{{ID: b, Addrs: anywhere}})
		time.Sleep(10 * time.Minute)
		for range 20 {
			a.SendMember(b, []byte("heartbeat"))
			time.Sleep(500 * time.Millisecond)
		}
		if n := c.since(time.Now().Add(-10 * time.Second)); n < 15 || n > 40 {
			t.Errorf("%d dials in ten seconds with a message each 500 ms", n)
		}
		run()
		a.SendMember(b, []byte("heartbeat"))
		time.Sleep(100 * time.Millisecond)
		if !connected(a) {
			t.Error("a message to a peer that is back does not make it be found")
		}
	})
}

func TestNewAddressesAreTriedAtOnce(t *testing.T) {
	withDialer(t, func(t *testing.T, a *p2p.Transport, c *counted, b peer.ID, run func()) {
		run()
		a.SetWanted([]peer.AddrInfo{{ID: b}})
		time.Sleep(10 * time.Minute)
		if connected(a) {
			t.Fatal("connected without an address")
		}
		a.SetWanted([]peer.AddrInfo{{ID: b, Addrs: anywhere}})
		time.Sleep(100 * time.Millisecond)
		if !connected(a) {
			t.Error("a new address was not tried")
		}
		n := c.since(time.Time{})
		a.SetWanted([]peer.AddrInfo{{ID: b, Addrs: anywhere}})
		a.SetWanted(nil)
		time.Sleep(time.Minute)
		if c.since(time.Time{}) != n {
			t.Error("a peer that is connected, or not wanted, was dialed")
		}
	})
}

// One side may not have noticed that the old connection is dead: what comes on
// a new one is the truth.
func TestMemberChannelMovesToANewConnection(t *testing.T) {
	withDialer(t, func(t *testing.T, a *p2p.Transport, c *counted, b peer.ID, run func()) {
		run()
		a.SetWanted([]peer.AddrInfo{{ID: b, Addrs: anywhere}})
		time.Sleep(time.Second)
		opens := func() int {
			for range 3 {
				a.SendMember(b, []byte("x"))
				time.Sleep(100 * time.Millisecond)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.opens
		}
		if n := opens(); n != 1 {
			t.Errorf("%d streams for three messages on one connection", n)
		}
		c.ev.Opened(b)
		if n := opens(); n != 2 {
			t.Errorf("%d streams after a second connection, want 2", n)
		}
	})
}

// What is asked of a transport before Run takes effect when it begins, and
// nothing happens after it.
func TestBeforeAndAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.New(1, p2ptest.Link{Latency: time.Millisecond})
		var nodes []*p2p.Transport
		var mu sync.Mutex
		var got []string
		for i := range 2 {
			nodes = append(nodes, p2p.NewTransport(net.Endpoint(p2ptest.PeerID(i)), p2p.Handlers{
				Member: func(peer.ID, []byte) {},
				Lock: func(_ locks.NodeID, _ locks.Epoch, frame []byte) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, string(frame))
				},
			}, nil))
		}
		a, b := nodes[0], nodes[1]
		na, nb := p2p.NodeID(a.ID(), 1), p2p.NodeID(b.ID(), 1)
		for _, x := range []struct {
			t    *p2p.Transport
			name locks.NodeID
		}{{a, na}, {b, nb}} {
			x.t.SetWanted([]peer.AddrInfo{{ID: a.ID()}, {ID: b.ID()}})
			if err := x.t.SetView(1, x.name, []locks.NodeID{na, nb}); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Send(1, nb, []byte("early")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, x := range nodes {
			wg.Go(func() {
				if err := x.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		mu.Lock()
		if len(got) != 1 || got[0] != "early" {
			t.Errorf("got %q", got)
		}
		mu.Unlock()
		// What has arrived is not kept.
		for range 1000 {
			if err := a.Send(1, nb, make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if s := a.Peers()[0].Sessions[0]; !s.Up || s.Waiting != 0 || s.Unacked >= 32 || s.Bytes > 32*10 {
			t.Errorf("after a thousand frames have arrived: %+v", s)
		}
		cancel()
		wg.Wait()
		a.SetWanted([]peer.AddrInfo{{ID: b.ID()}})
		if err := a.SetView(2, na, []locks.NodeID{na, nb}); err != nil {
			t.Error(err)
		}
		if a.SendMember(b.ID(), nil) {
			t.Error("a message was taken after Run")
		}
		if _, err := a.Ask(t.Context(), b.ID(), nil); err == nil {
			t.Error("a question was asked after Run")
		}
		if err := a.Run(t.Context()); err == nil {
			t.Error("Run a second time")
		}
		synctest.Wait()
	})
}
