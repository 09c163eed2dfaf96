package p2p

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/pnet"
	private "github.com/libp2p/go-libp2p/p2p/net/pnet"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// What hosts do that have another secret, another identity, or no good intentions.

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

// Who ends a connection before its handshake is through, as one does that has dialed two
// addresses at once, is nobody to warn of.
func TestWhoEndsTheHandshakeIsNotForeign(t *testing.T) {
	a := startNode(t)
	addr, err := manet.ToNetAddr(a.info(t).Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	ended := func() int { return strings.Count(a.log.String(), "a connection ended in its handshake") }
	for i, say := range []bool{false, true} {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		if say { // the first words, by the right secret
			p, err := private.NewProtectedConn(pnet.PSK(a.host.ring.keys[0][:]), c)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Write([]byte(firstBytes)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(p, make([]byte, len(firstBytes))); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		poll(t, "the end of the connection", func() bool { return ended() == i+1 })
	}
	if strings.Contains(a.log.String(), "WARN") {
		t.Error("it is warned of them")
	}
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
		a.host.gater.mu.Lock()
		defer a.host.gater.mu.Unlock()
		return a.host.gater.strangers == 0 && a.host.gater.conns == 1
	})
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	poll(t, "b to be gone", func() bool {
		a.host.gater.mu.Lock()
		defer a.host.gater.mu.Unlock()
		return a.host.gater.conns == 0 && len(a.host.gater.peers) == 0 && len(a.host.gater.hosts) == 0
	})
}

// Strangers are limited in all, and by address: of IPv6 by the network that one
// host has all of.
func TestStrangersAreLimitedByAddress(t *testing.T) {
	a := startNode(t)
	g := newGater(nil, a.host.log, false)
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
