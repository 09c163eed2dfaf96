package p2p

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

func wantLog(tb testing.TB, n *node, parts ...string) {
	tb.Helper()
	poll(tb, fmt.Sprintf("a line in the log of %s with %q", n.name, parts), func() bool {
		for line := range strings.Lines(n.log.String()) {
			if containsAll(line, parts) {
				return true
			}
		}
		return false
	})
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

func connectOnce(tb testing.TB, a, b *node) error {
	a.host.SetAddrs(b.info(tb))
	return a.host.Connect(tb.Context(), b.host.ID())
}

func TestAllAddressesAreTried(t *testing.T) {
	t.Parallel()
	a, b := startNode(t), startNode(t)
	var addrs []ma.Multiaddr
	for range maxAddrs - 1 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		dead, err := manet.FromNetAddr(l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // accepts, and never says a word
		addrs = append(addrs, dead)
	}
	a.host.SetAddrs(peer.AddrInfo{ID: b.host.ID(), Addrs: append(addrs, b.info(t).Addrs...)})
	if err := a.host.Connect(t.Context(), b.host.ID()); err != nil {
		t.Error(err)
	}
	if strings.Contains(a.log.String(), "WARN") {
		t.Error("own dials are logged as if they were refused")
	}
}

func TestConnectionsOfOnePeerAreBounded(t *testing.T) {
	n := startNode(t)
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	addr := ma.StringCast("/ip4/192.0.2.1/tcp/1")
	open := func(dir network.Direction) (network.ConnManagementScope, error) {
		s, err := n.host.gater.OpenConnection(dir, true, addr)
		if err != nil {
			return nil, err
		}
		return s, s.SetPeer(id.ID())
	}
	var scopes []network.ConnManagementScope
	for i := range 2 * maxPeerConns {
		s, err := open(network.DirInbound)
		if (err != nil) != (i >= maxPeerConns) {
			t.Errorf("connection %d: %v", i, err)
		}
		scopes = append(scopes, s)
	}
	if _, err := open(network.DirOutbound); err != nil {
		t.Errorf("outbound: %v", err)
	}
	for _, s := range scopes {
		s.Done()
		s.Done()
	}
	if s, err := open(network.DirInbound); err != nil || s.PeerScope().Peer() != id.ID() {
		t.Errorf("after the end of all: %v", err)
	}
	for range maxConns {
		_, err = n.host.gater.OpenConnection(network.DirOutbound, true, addr)
	}
	if err == nil {
		t.Error("connections are not bounded in all")
	}
}

// The pauses of libp2p after a failed dial would be seconds.
func TestPeerThatIsBackCanBeDialedAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := manet.FromNetAddr(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	a := startNode(t)
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	a.host.SetAddrs(peer.AddrInfo{ID: id.ID(), Addrs: []ma.Multiaddr{addr}})
	if err := a.host.Connect(t.Context(), id.ID()); err == nil || !strings.Contains(err.Error(), "connection refused") || errors.Is(err, ErrRefused) {
		t.Errorf("Connect to nobody: %v", err)
	}
	startNode(t, func(o *Options) { o.Identity, o.Listen = id, []ma.Multiaddr{addr} })
	if err := a.host.Connect(t.Context(), id.ID()); err != nil {
		t.Error(err)
	}
}

// A node that is offline has no connections, whoever dials, and says nothing of
// who it is.
func TestOffline(t *testing.T) {
	a := startNode(t, func(o *Options) { o.Offline = true })
	b := startNode(t)
	for range 2 {
		if err := connectOnce(t, a, b); !errors.Is(err, errOffline) {
			t.Errorf("an offline node dials: %v", err)
		}
		if err := connectOnce(t, b, a); err == nil {
			t.Error("an offline node is dialed")
		}
		// One that was made when a went offline ends at once.
		poll(t, "them not to be connected", func() bool { return !a.connectedTo(b) && !b.connectedTo(a) })
		a.host.SetOnline(true)
		connect(t, b, a)
		a.host.SetOnline(false)
		poll(t, "b to lose a", func() bool { return !b.connectedTo(a) })
	}
	a.host.SetOnline(true)
	connect(t, a, b)
}

func TestListenErrorsNameTheAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken, err := manet.FromNetAddr(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	free := ma.StringCast("/ip4/127.0.0.1/tcp/0")
	h, err := NewHost(Options{Identity: id, Secret: testSecret(), Listen: []ma.Multiaddr{free, taken}})
	if err != nil {
		t.Fatal(err)
	}
	tr := NewTransport(h, Handlers{}, nil)
	if err := tr.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "can't listen on "+taken.String()) {
		t.Errorf("Run: %v", err)
	}
	for _, bad := range []string{"/ip4/127.0.0.1/udp/1/quic-v1", "/ip4/127.0.0.1/tcp/1/ws", "/ip4/127.0.0.1", "/unix/tmp/x"} {
		_, err := NewHost(Options{Identity: id, Secret: testSecret(), Listen: []ma.Multiaddr{ma.StringCast(bad)}})
		if err == nil || !strings.Contains(err.Error(), "only TCP") {
			t.Errorf("listen on %s: %v", bad, err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"no identity":       {Secret: testSecret()},
		"no cluster secret": {Identity: id},
		"name of the clust": {Identity: id, Secret: testSecret(), MDNS: true},
	} {
		if _, err := NewHost(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDefaultListensOnAllInterfaces(t *testing.T) {
	n := startNode(t, func(o *Options) { o.Listen = nil })
	addrs := n.info(t).Addrs
	if len(addrs) == 0 || !manet.IsIPLoopback(addrs[len(addrs)-1]) {
		t.Errorf("own addresses %v: loopback should be there, and last", addrs)
	}
	for _, a := range addrs {
		if manet.IsIPUnspecified(a) || !isTCP(a) {
			t.Errorf("own address %s can't be dialed", a)
		}
	}
}

// Both dial at the same time, again and again; one connection remains.
func TestSimultaneousDialsAreSettled(t *testing.T) {
	a, b := startNode(t), startNode(t)
	a.host.SetAddrs(b.info(t))
	b.host.SetAddrs(a.info(t))
	double := func() bool {
		start := make(chan struct{})
		errs := make(chan error, 2)
		for _, d := range [][2]*node{{a, b}, {b, a}} {
			go func() {
				<-start
				errs <- d[0].host.Connect(t.Context(), d[1].host.ID())
			}()
		}
		close(start)
		for range 2 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		return len(a.host.Conns(b.host.ID())) == 2
	}
	for i := 0; !double(); i++ {
		if i == 100 {
			t.Skip("in 100 tries the two dials never crossed")
		}
		poll(t, "both ends to see the end", func() bool {
			_ = a.host.swarm.ClosePeer(b.host.ID())
			return len(a.host.Conns(b.host.ID())) == 0 && len(b.host.Conns(a.host.ID())) == 0
		})
	}
	// New streams go on the newest, or where streams are.
	for _, n := range []*node{a, b} {
		other := a
		if n == a {
			other = b
		}
		poll(t, "no stream is open", func() bool {
			for _, c := range n.host.swarm.ConnsToPeer(other.host.ID()) {
				if len(c.GetStreams()) > 0 {
					return false
				}
			}
			return true
		})
		s, err := n.host.Open(t.Context(), other.host.ID(), askProtocol)
		if err != nil {
			t.Fatal(err)
		}
		opened := s.(hostStream).Conn().Stat().Opened
		_ = s.Reset()
		if all := n.host.Conns(other.host.ID()); !all[len(all)-1].Opened.Equal(opened) {
			t.Error("a stream was opened on the older of two connections")
		}
	}
	setView(t, 1, a, b)
	if err := a.Send(1, b.name, []byte("before")); err != nil {
		t.Fatal(err)
	}
	small := a
	if b.host.ID() < a.host.ID() {
		small = b
	}
	poll(t, "one connection", func() bool {
		return len(a.host.Conns(b.host.ID())) == 1 && len(b.host.Conns(a.host.ID())) == 1
	})
	for _, n := range []*node{a, b} {
		other := a
		if n == a {
			other = b
		}
		if c := n.host.Conns(other.host.ID())[0]; c.Inbound == (n == small) {
			t.Errorf("the connection that remains was not dialed by %s, the smaller", small.host.ID())
		}
	}
	if err := a.Send(1, b.name, []byte("after")); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "both frames", func() bool { return len(b.frames[a.name]) == 2 })
}

func TestCopiedIdentityIsNoticed(t *testing.T) {
	t.Parallel()
	a := startNode(t)
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n := startNode(t, func(o *Options) { o.Identity = id })
		n.SetWanted([]peer.AddrInfo{a.info(t)})
		poll(t, "a connection", func() bool { return n.connectedTo(a) })
	}
	wantLog(t, a, "WARN", "two processes use the identity of one peer", id.ID().String())
}

func TestPeerIsToldOfConnections(t *testing.T) {
	// Through the channels: the member channel works from inside the handler.
	a, b := startNode(t), startNode(t)
	type change struct {
		p  peer.ID
		up bool
	}
	changes := make(chan change, 10)
	b.Transport.h.Peer = func(p peer.ID, up bool) {
		if up && !b.SendMember(p, []byte("welcome")) {
			t.Error("no message can be sent from the handler")
		}
		changes <- change{p, up}
	}
	if err := connectOnce(t, a, b); err != nil {
		t.Fatal(err)
	}
	if got := <-changes; got != (change{a.host.ID(), true}) {
		t.Errorf("got %v", got)
	}
	poll(t, "a message", func() bool {
		if len(changes) > 0 {
			t.Fatalf("and then %v", <-changes)
		}
		b.SendMember(a.host.ID(), []byte("again")) // on a busy machine the first may have been too old
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.member) > 0
	})
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	if got := <-changes; got != (change{a.host.ID(), false}) {
		t.Errorf("got %v", got)
	}
}

// What ends before libp2p's listener hands it out is not counted for ever: the
// listener asks whether it is closed, and forgets it.
func TestConnectionsThatEndBeforeTheyAreHandedOutAreNotCounted(t *testing.T) {
	g := newGater(nil, newLimitedLog(slog.New(slog.DiscardHandler)), false)
	scope, err := g.OpenConnection(network.DirInbound, true, ma.StringCast("/ip4/127.0.0.1/tcp/1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := scope.SetPeer("peer"); err != nil {
		t.Fatal(err)
	}
	var closed closedMuxer
	c, err := countingMuxer{&closed}.NewConn(nil, true, scope.PeerScope())
	if err != nil || c.IsClosed() || g.conns != 1 || g.peers["peer"] != 1 {
		t.Errorf("an open connection: %v, closed %v, %d in all, %d of the peer", err, c.IsClosed(), g.conns, g.peers["peer"])
	}
	closed.yes = true
	if !c.IsClosed() || g.conns != 0 || len(g.peers) != 0 {
		t.Errorf("a closed connection: closed %v, %d in all, peers %v", c.IsClosed(), g.conns, g.peers)
	}
	scope.Done()
	if g.conns != 0 {
		t.Errorf("%d connections after Done", g.conns)
	}
}

// closedMuxer makes connections that are closed when it says yes.
type closedMuxer struct {
	network.MuxedConn
	yes bool
}

func (m *closedMuxer) NewConn(net.Conn, bool, network.PeerScope) (network.MuxedConn, error) {
	return m, nil
}

func (m *closedMuxer) IsClosed() bool { return m.yes }
