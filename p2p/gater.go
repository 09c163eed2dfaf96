package p2p

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Limits of connections. A cluster has at most 128 members with one connection
// each, and a second one for a moment when both sides dial. What this node dials
// counts only in all: there is one try for each address of a peer.
const (
	maxConns     = 1024 // in all
	maxPeerConns = 8    // inbound, of one peer
	maxStrangers = 128  // inbound, before the handshake has told who it is
	// Of one address, so that one host cannot keep out the others. All nodes
	// of a small cluster may be on one.
	maxHostStrangers = 32
)

// gater decides who may connect. It is the connection gater of libp2p, and its
// resource manager: only the latter hears of connections whose handshake fails,
// which is what a stranger, or a node with another secret, looks like.
type gater struct {
	network.NullResourceManager
	allow func(peer.ID) bool // may be nil
	log   *limitedLog

	offline atomic.Bool // nobody may connect, for now

	mu        sync.Mutex
	revoked   map[peer.ID]bool
	conns     int
	strangers int
	hosts     map[string]int // strangers, by hostOf
	peers     map[peer.ID]int
}

var (
	_ connmgr.ConnectionGater = (*gater)(nil)
	_ network.ResourceManager = (*gater)(nil)
)

func newGater(allow func(peer.ID) bool, log *limitedLog, offline bool) *gater {
	g := &gater{allow: allow, log: log, revoked: make(map[peer.ID]bool), hosts: make(map[string]int), peers: make(map[peer.ID]int)}
	g.offline.Store(offline)
	return g
}

// mayConnect says why p may not be connected, or nil.
func (g *gater) mayConnect(p peer.ID) error {
	g.mu.Lock()
	revoked := g.revoked[p]
	g.mu.Unlock()
	if revoked {
		return fmt.Errorf("%w: %s is revoked", ErrRefused, p)
	}
	if g.allow != nil && !g.allow(p) {
		return fmt.Errorf("%w: %s is not allowed", ErrRefused, p)
	}
	return nil
}

func (g *gater) setRevoked(peers []peer.ID) {
	revoked := make(map[peer.ID]bool, len(peers))
	for _, p := range peers {
		revoked[p] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.revoked = revoked
}

// InterceptPeerDial is asked before a dial.
func (g *gater) InterceptPeerDial(p peer.ID) bool { return !g.offline.Load() && g.mayConnect(p) == nil }

// InterceptAddrDial is asked for each address of a dial.
func (g *gater) InterceptAddrDial(peer.ID, ma.Multiaddr) bool { return true }

// InterceptAccept is asked when a connection comes in; see OpenConnection.
func (g *gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured is asked after the handshake; see connScope.SetPeer.
func (g *gater) InterceptSecured(network.Direction, peer.ID, network.ConnMultiaddrs) bool {
	return true
}

// InterceptUpgraded is asked when a connection is complete. It asks once more,
// for a peer that was revoked during the handshake.
func (g *gater) InterceptUpgraded(c network.Conn) (bool, control.DisconnectReason) {
	return !g.offline.Load() && g.mayConnect(c.RemotePeer()) == nil, 0
}

// OpenConnection counts a connection before its handshake.
func (g *gater) OpenConnection(dir network.Direction, _ bool, addr ma.Multiaddr) (network.ConnManagementScope, error) {
	if g.offline.Load() {
		return nil, network.ErrResourceLimitExceeded
	}
	inbound := dir == network.DirInbound
	host := hostOf(addr)
	g.mu.Lock()
	crowded, strange := g.conns >= maxConns, inbound && g.strangers >= maxStrangers
	flood := inbound && g.hosts[host] >= maxHostStrangers
	if !crowded && !strange && !flood {
		g.conns++
		if inbound {
			g.strangers++
			g.hosts[host]++
		}
	}
	g.mu.Unlock()
	switch {
	case crowded:
		g.log.warnOnce("too many connections", "refused a connection: there are too many", "addr", addr, "limit", maxConns)
		return nil, network.ErrResourceLimitExceeded
	case strange:
		g.log.warnOnce("too many strangers", "refused a connection: too many are in their handshake", "addr", addr, "limit", maxStrangers)
		return nil, network.ErrResourceLimitExceeded
	case flood:
		g.log.warnOnce("too many strangers:"+host, "refused a connection: too many from this address are in their handshake", "addr", addr, "limit", maxHostStrangers)
		return nil, network.ErrResourceLimitExceeded
	}
	return &connScope{g: g, addr: addr, host: host, inbound: inbound, stranger: inbound}, nil
}

// hostOf is the host that an address is of, as far as it is counted: with IPv6
// the network of 64 bits, all addresses of which one host can have.
func hostOf(addr ma.Multiaddr) string {
	ip, err := manet.ToIP(addr)
	if err != nil {
		return addr.String()
	}
	if ip.To4() == nil {
		ip = ip.Mask(net.CIDRMask(64, 128))
	}
	return ip.String()
}

// connScope is one connection, from before its handshake to its end.
type connScope struct {
	network.NullScope
	g       *gater
	addr    ma.Multiaddr
	host    string
	inbound bool

	// Guarded by g.mu.
	stranger bool // inbound, and SetPeer was not called
	foreign  bool // what came was not of this cluster
	peer     peer.ID
	counted  bool // in g.peers
	done     bool
}

// peerScope is what a connScope belongs to once its peer is known.
type peerScope struct {
	network.NullScope
	peer peer.ID
	conn *connScope
}

func (s *peerScope) Peer() peer.ID { return s.peer }

// countingMuxer makes muxed connections that take themselves out of the counts.
// A connection that ends between its handshake and the moment when libp2p's
// listener hands it out is left out there, and its scope is never Done
// (upgrader/listener.go, Accept, in go-libp2p 0.51): it would count for ever, and
// a peer that does so some times, as hosts may that dial each other at once,
// could not connect any more. All that the listener does is ask IsClosed.
type countingMuxer struct{ network.Multiplexer }

func (m countingMuxer) NewConn(c net.Conn, isServer bool, scope network.PeerScope) (network.MuxedConn, error) {
	mc, err := m.Multiplexer.NewConn(c, isServer, scope)
	if p, ok := scope.(*peerScope); ok && err == nil {
		mc = &countedConn{mc, p.conn}
	}
	return mc, err
}

type countedConn struct {
	network.MuxedConn
	scope *connScope
}

func (c *countedConn) IsClosed() bool {
	closed := c.MuxedConn.IsClosed()
	if closed {
		c.scope.Done()
	}
	return closed
}

// PeerScope is nil until the peer is known: so libp2p calls SetPeer.
func (s *connScope) PeerScope() network.PeerScope {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if s.peer == "" {
		return nil
	}
	return &peerScope{peer: s.peer, conn: s}
}

// SetPeer is called when the handshake has shown who the peer is. An error
// ends the connection.
func (s *connScope) SetPeer(p peer.ID) error {
	err := s.g.mayConnect(p)
	s.g.mu.Lock()
	s.known()
	if err == nil && s.inbound && s.g.peers[p] >= maxPeerConns {
		err = fmt.Errorf("%w: %s has %d connections", ErrRefused, p, s.g.peers[p])
	}
	if err == nil {
		s.peer = p
		if s.inbound {
			s.g.peers[p]++
			s.counted = true
		}
	}
	s.g.mu.Unlock()
	if err != nil {
		s.g.log.warnOnce("gater:"+string(p), "refused a connection", "peer", p, "addr", s.addr, "err", err)
	}
	return err
}

// setForeign notes that what has come was not of this cluster.
func (s *connScope) setForeign() {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.foreign = true
}

// Done is called at the end of the connection, sometimes twice. Who has dialed several
// addresses of this node keeps one connection, and ends the others in their handshake.
func (s *connScope) Done() {
	switch stranger, foreign := s.uncount(); {
	case stranger && foreign:
		s.g.log.warnOnce("handshake:"+s.host, "a connection failed in its handshake: it comes from a node with another cluster secret, or from no dmxfs", "addr", s.addr)
	case stranger:
		s.g.log.Debug("a connection ended in its handshake", "addr", s.addr)
	}
}

// uncount takes the connection out of all counts, and reports whether it has
// remained a stranger.
func (s *connScope) uncount() (stranger, foreign bool) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if s.done {
		return false, false
	}
	s.done = true
	s.g.conns--
	if s.counted {
		if s.g.peers[s.peer]--; s.g.peers[s.peer] == 0 {
			delete(s.g.peers, s.peer)
		}
	}
	return s.known(), s.foreign
}

// known takes the connection out of the strangers, and reports whether it was
// one. REQUIRES: g.mu held.
func (s *connScope) known() bool {
	if !s.stranger {
		return false
	}
	s.stranger = false
	s.g.strangers--
	if s.g.hosts[s.host]--; s.g.hosts[s.host] == 0 {
		delete(s.g.hosts, s.host)
	}
	return true
}
