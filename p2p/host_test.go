package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/multiformats/go-multistream"
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

func TestNodesOfAnotherSecretDoNotConnect(t *testing.T) {
	a := startNode(t)
	b := startNode(t, func(o *Options) {
		s, err := ParseSecret(NewSecret())
		if err != nil {
			t.Fatal(err)
		}
		o.Secret = s
	})
	err := connectOnce(t, a, b)
	if err == nil || !strings.Contains(err.Error(), "another cluster secret") || !strings.Contains(err.Error(), b.info(t).Addrs[0].String()) {
		t.Errorf("Connect: %v", err)
	}
	wantLog(t, b, "WARN", "another cluster secret", "/ip4/127.0.0.1/tcp/")
	if a.connectedTo(b) || b.connectedTo(a) {
		t.Error("they are connected")
	}
	// The one that dials in vain says so as well.
	a.SetWanted([]peer.AddrInfo{b.info(t)})
	wantLog(t, a, "WARN", "can't connect to a peer", b.host.ID().String(), "another cluster secret")
}

func connectOnce(tb testing.TB, a, b *node) error {
	a.host.SetAddrs(b.info(tb))
	return a.host.Connect(tb.Context(), b.host.ID())
}

func TestGarbageOnThePortIsLoggedAndHarmless(t *testing.T) {
	a, b := startNode(t), startNode(t)
	addr, err := manet.ToNetAddr(a.info(t).Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 100))); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c) // until it hangs up
		c.Close()
	}
	wantLog(t, a, "WARN", "failed in its handshake", "addr=/ip4/127.0.0.1/tcp/")
	if n := strings.Count(a.log.String(), "failed in its handshake"); n != 1 {
		t.Errorf("three tries within a minute were logged %d times", n)
	}
	connect(t, a, b)
}

func TestStrangersCanNotUseUpTheHandshakes(t *testing.T) {
	a, b := startNode(t), startNode(t)
	addr, err := manet.ToNetAddr(a.info(t).Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	var strangers []net.Conn
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range maxHostStrangers + 10 {
		c, err := from.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		strangers = append(strangers, c)
	}
	wantLog(t, a, "WARN", "too many from this address are in their handshake")
	// Those of another address get in meanwhile.
	b.SetWanted([]peer.AddrInfo{a.info(t)})
	poll(t, "b to get in", func() bool { return b.connectedTo(a) })
	// They are not counted for ever, and neither are the others.
	for _, c := range strangers {
		c.Close()
	}
	poll(t, "the strangers to be gone", func() bool {
		a.host.gate.mu.Lock()
		defer a.host.gate.mu.Unlock()
		return a.host.gate.strangers == 0 && a.host.gate.conns == 1
	})
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	poll(t, "b to be gone", func() bool {
		a.host.gate.mu.Lock()
		defer a.host.gate.mu.Unlock()
		return a.host.gate.conns == 0 && len(a.host.gate.peers) == 0 && len(a.host.gate.hosts) == 0
	})
}

// Strangers are limited in all, and by address: of IPv6 by the network that one
// host has all of.
func TestStrangersAreLimitedByAddress(t *testing.T) {
	a := startNode(t)
	g := newGate(nil, a.host.log, false)
	open := func(format string, n int) (opened []network.ConnManagementScope) {
		for i := range n {
			if s, err := g.OpenConnection(network.DirInbound, false, ma.StringCast(fmt.Sprintf(format, i%250))); err == nil {
				opened = append(opened, s)
			}
		}
		return opened
	}
	one := open("/ip4/192.0.2.1/tcp/10%d", 100)
	if n := len(one); n != maxHostStrangers {
		t.Errorf("%d of one address", n)
	}
	if n := len(open("/ip6/2001:db8::%x/tcp/1", 100)); n != maxHostStrangers {
		t.Errorf("%d of one network of IPv6", n)
	}
	if n := len(open("/ip4/198.51.100.%d/tcp/1", 250)); n != maxStrangers-2*maxHostStrangers {
		t.Errorf("%d more in all", n)
	}
	one[0].Done()
	if n := len(open("/ip4/192.0.2.1/tcp/10%d", 2)); n != 1 {
		t.Errorf("%d in the place of one", n)
	}
}

func TestWrongPeerAtTheAddress(t *testing.T) {
	a, b, c := startNode(t), startNode(t), startNode(t)
	a.host.SetAddrs(peer.AddrInfo{ID: c.host.ID(), Addrs: b.info(t).Addrs})
	err := a.host.Connect(t.Context(), c.host.ID())
	if err == nil || !strings.Contains(err.Error(), "another node answers there, "+b.host.ID().String()) {
		t.Errorf("Connect: %v", err)
	}
}

func TestAllAddressesAreTried(t *testing.T) {
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
		s, err := n.host.gate.OpenConnection(dir, true, addr)
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
		_, err = n.host.gate.OpenConnection(network.DirOutbound, true, addr)
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

func TestRevokedPeersAreDisconnectedAndStayOut(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	b.SetWanted([]peer.AddrInfo{a.info(t)}) // it will try again and again
	a.host.Revoke([]peer.ID{b.host.ID()})
	poll(t, "a to lose b", func() bool { return !a.connectedTo(b) })
	if err := a.host.Connect(t.Context(), b.host.ID()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("Connect to a revoked peer: %v", err)
	}
	wantLog(t, a, "WARN", "refused a connection", b.host.ID().String(), "revoked", "addr=/ip4/127.0.0.1/tcp/")
	wantLog(t, b, "WARN", "can't connect to a peer", a.host.ID().String(), "does not admit this node")
	if a.connectedTo(b) {
		t.Error("a revoked peer is connected")
	}
	a.host.Revoke(nil)
	connect(t, a, b)
}

func TestAllowDecidesWhoConnects(t *testing.T) {
	a := startNode(t, func(o *Options) { o.Allow = func(peer.ID) bool { return false } })
	b := startNode(t)
	if err := connectOnce(t, a, b); !errors.Is(err, ErrRefused) {
		t.Errorf("Connect to a peer that is not allowed: %v", err)
	}
	_ = connectOnce(t, b, a) // looks well to b, until a hangs up
	wantLog(t, a, "WARN", "refused a connection", b.host.ID().String(), "not allowed")
	poll(t, "b to lose a", func() bool { return !b.connectedTo(a) })
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
		if a.connectedTo(b) || b.connectedTo(a) {
			t.Error("connected")
		}
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
	// New streams go on the newest.
	for _, n := range []*node{a, b} {
		other := a
		if n == a {
			other = b
		}
		s, err := n.host.Open(t.Context(), other.host.ID(), askProtocol)
		if err != nil {
			t.Fatal(err)
		}
		opened := s.(hostStream).Conn().Stat().Opened
		_ = s.Reset()
		for _, c := range n.host.Conns(other.host.ID()) {
			if c.Opened.After(opened) {
				t.Error("a stream was opened on the older of two connections")
			}
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

// A peer that knows the secret but speaks other versions, or nonsense.
type oddity struct{ *Host }

type quiet struct{ serve func(Stream) }

func (quiet) Opened(peer.ID) {}
func (quiet) Closed(peer.ID) {}
func (q quiet) Accept(_ peer.ID, _ protocol.ID, s Stream) {
	if q.serve != nil {
		q.serve(s)
	}
}

func startOddity(t *testing.T, protocols []protocol.ID, serve func(Stream)) *oddity {
	t.Helper()
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHost(Options{Identity: id, Secret: testSecret(), Listen: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/0")}})
	if err != nil {
		t.Fatal(err)
	}
	h.muxer = multistream.NewMultistreamMuxer[protocol.ID]()
	for _, p := range protocols {
		h.muxer.AddHandler(p, nil)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx, quiet{serve}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-h.Ready()
	return &oddity{Host: h}
}

func (o *oddity) info(t *testing.T) peer.AddrInfo {
	addrs, err := o.OwnAddrs()
	if err != nil {
		t.Fatal(err)
	}
	return peer.AddrInfo{ID: o.ID(), Addrs: addrs}
}

func TestPeerWithOtherProtocolVersions(t *testing.T) {
	a := startNode(t)
	o := startOddity(t, []protocol.ID{"/dmxfs/lock/2", "/dmxfs/member/1"}, nil)
	a.SetWanted([]peer.AddrInfo{o.info(t)})
	poll(t, "a connection", func() bool { return a.SendMember(o.ID(), []byte("x")) })
	wantLog(t, a, "WARN", "another version of dmxfs", o.ID().String(), "/dmxfs/member/2", o.info(t).Addrs[0].String())
	if _, err := a.Ask(t.Context(), o.ID(), nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("Ask: %v", err)
	}
	// And the other way round.
	_, err := o.Open(t.Context(), a.host.ID(), "/dmxfs/lock/2")
	if !errors.Is(err, ErrProtocol) {
		t.Errorf("Open: %v", err)
	}
	wantLog(t, a, "WARN", "refused a stream of a peer", o.ID().String(), "no protocol of this version")
}

func TestGarbageOnStreamsIsRefusedWithAReason(t *testing.T) {
	a := startNode(t)
	setView(t, 1, a)
	tests := []struct {
		name  string
		proto protocol.ID
		send  []byte
		log   string
	}{
		{"text", lockProtocol, []byte("GET / HTTP/1.1\r\n"), `begins with \"GET / H\"`},
		{"other version", lockProtocol, []byte("dmxfsL\x02" + strings.Repeat("\x00", helloLen)), "version 2 of the wire format"},
		{"other kind", memberProtocol, []byte("dmxfsL\x01"), "a stream of kind"},
		{"long message", memberProtocol, memberHead{Len: MaxMember + 1}.append(appendPreamble(nil, kindMember)), fmt.Sprintf("a message of %d bytes", MaxMember+1)},
		{"long state", syncProtocol, append(hello{Epoch: 1}.append(appendPreamble(nil, kindSync)), "\xff\xff\xff\xff\xff\xff\xff\xff"...), "a state of"},
		{"long question", askProtocol, append(appendPreamble(nil, kindAsk), "\x00\x00\x10\x00\xff\xff\xff\xff"...), "a question of"},
		{"stranger", lockProtocol, hello{Epoch: 1, From: 7}.append(appendPreamble(nil, kindLock)), "is not a member of epoch 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := startOddity(t, nil, nil)
			o.SetAddrs(a.info(t))
			if err := o.Connect(t.Context(), a.host.ID()); err != nil {
				t.Fatal(err)
			}
			s, err := o.Open(t.Context(), a.host.ID(), tt.proto)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Reset()
			if _, err := s.Write(tt.send); err != nil {
				t.Fatal(err)
			}
			_ = s.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, s); errors.Is(err, context.DeadlineExceeded) {
				t.Error("the stream was left open")
			}
			wantLog(t, a, "WARN", "refused a stream of a peer", o.ID().String(), "addr=/ip4/127.0.0.1/tcp/", string(tt.proto), tt.log)
		})
	}
	b := startNode(t)
	connect(t, a, b)
}

// A node that does not serve a channel says so, and goes on.
func TestChannelsWithoutHandlerAreRefused(t *testing.T) {
	a, b := startNode(t), startNode(t)
	b.Transport.h = Handlers{}
	connect(t, a, b)
	if _, err := a.Ask(t.Context(), b.host.ID(), nil); err == nil {
		t.Error("Ask: no error")
	}
	poll(t, "a message to be sent", func() bool {
		a.SendMember(b.host.ID(), []byte("x"))
		return strings.Contains(b.log.String(), "/dmxfs/member/2")
	})
	wantLog(t, b, "WARN", "refused a stream", a.host.ID().String(), "nothing here serves", "/dmxfs/ask/1")
	wantLog(t, b, "WARN", "refused a stream", a.host.ID().String(), "nothing here serves", "/dmxfs/member/2")
}

// What a peer answers can be nonsense as well.
func TestGarbageAsAnswerIsAnError(t *testing.T) {
	a := startNode(t)
	for name, reply := range map[string][]byte{
		"text":           []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"status":         append(appendPreamble(nil, kindAsk), 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"length":         verdict{Value: MaxAnswer + 1}.append(appendPreamble(nil, kindAsk)),
		"cut short":      verdict{Value: 100}.append(appendPreamble(nil, kindAsk)),
		"nothing at all": nil,
	} {
		t.Run(name, func(t *testing.T) {
			o := startOddity(t, []protocol.ID{askProtocol, memberProtocol}, func(s Stream) {
				_, _ = s.Read(make([]byte, 100))
				_, _ = s.Write(reply)
			})
			a.host.SetAddrs(o.info(t))
			if err := a.host.Connect(t.Context(), o.ID()); err != nil {
				t.Fatal(err)
			}
			if got, err := a.Ask(t.Context(), o.ID(), []byte("?")); err == nil {
				t.Errorf("Ask: %q", got)
			}
		})
	}
}

// What ends before libp2p's listener hands it out is not counted for ever: the
// listener asks whether it is closed, and forgets it.
func TestConnectionsThatEndBeforeTheyAreHandedOutAreNotCounted(t *testing.T) {
	g := newGate(nil, newLimitedLog(slog.New(slog.DiscardHandler)), false)
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
