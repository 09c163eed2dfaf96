package p2p

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/pnet"
	"github.com/libp2p/go-libp2p/core/transport"
	private "github.com/libp2p/go-libp2p/p2p/net/pnet"
	manet "github.com/multiformats/go-multiaddr/net"
)

// A connection of the cluster is protected by a key of the private network,
// which libp2p knows one of. While the secret of the cluster changes a host has
// two: so it is below libp2p that a connection gets its key, in the same format.

// keyring has the keys of a host and the connections that are protected by them.
type keyring struct {
	mu    sync.Mutex
	keys  []key // a peer is dialed with the first, and accepted with any
	conns map[*keyedConn]struct{}
	// second has the peers whose last handshake with the first key failed:
	// they may not have it yet. Emptied when keys change.
	second map[peer.ID]bool
}

type key [32]byte

func newKeyring(first Secret) *keyring {
	return &keyring{keys: []key{first.psk}, conns: make(map[*keyedConn]struct{}), second: make(map[peer.ID]bool)}
}

// set replaces the keys, and ends the connections that are protected by others.
func (r *keyring) set(secrets []Secret) {
	var keys []key
	for _, s := range secrets {
		if !slices.Contains(keys, s.psk) {
			keys = append(keys, s.psk)
		}
	}
	r.mu.Lock()
	r.keys = keys
	clear(r.second)
	var old []*keyedConn
	for c := range r.conns {
		if !slices.Contains(keys, c.key) {
			old = append(old, c)
		}
	}
	r.mu.Unlock()
	for _, c := range old {
		_ = c.Conn.Close() // who reads and writes learns of it, and closes the rest
	}
}

// outbound protects a connection to a peer.
func (r *keyring) outbound(c manet.Conn, p peer.ID) (*keyedConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.keys[0]
	if r.second[p] && len(r.keys) > 1 {
		k = r.keys[1]
	}
	kc := &keyedConn{Conn: c, ring: r, key: k}
	return kc, kc.protect(c)
}

// dialed takes note of how a handshake with a peer has gone: the next one tries
// the other key.
func (r *keyring) dialed(p peer.ID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.keys) < 2 || err == nil {
		return
	}
	if r.second[p] {
		delete(r.second, p)
	} else {
		r.second[p] = true
	}
}

func (r *keyring) remove(c *keyedConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// keyedConn is a protected connection. One that comes in gets the key that its
// first bytes were encrypted with.
type keyedConn struct {
	manet.Conn
	ring      *keyring
	protected atomic.Pointer[net.Conn] // nil until the key is known

	// key is set before protected is, and not changed then.
	key key
	// scope is that of a connection that came in; nil for others.
	scope *connScope

	mu      sync.Mutex
	pending []byte // written before the key was known
	failed  error
}

// firstBytes is what both sides say first: the header of multistream-select.
const firstBytes = "\x13/multistream/1.0.0\n"

const (
	nonceSize  = 24
	maxPending = 1 << 10
)

var errNoKey = errors.New("p2p: the other side has another cluster secret, or is no dmxfs")

// protect begins the protection of what raw carries. REQUIRES: ring.mu held.
func (c *keyedConn) protect(raw net.Conn) error {
	p, err := private.NewProtectedConn(pnet.PSK(c.key[:]), raw)
	if err != nil {
		return err
	}
	c.protected.Store(&p)
	c.ring.conns[c] = struct{}{}
	return nil
}

func (c *keyedConn) Read(b []byte) (int, error) {
	p := c.protected.Load()
	if p == nil {
		if err := c.findKey(); err != nil {
			return 0, err
		}
		p = c.protected.Load()
	}
	return (*p).Read(b)
}

func (c *keyedConn) Write(b []byte) (int, error) {
	p := c.protected.Load()
	if p == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if p = c.protected.Load(); p == nil {
			if c.failed == nil && len(c.pending)+len(b) > maxPending {
				c.failed = errNoKey
			}
			if c.failed != nil {
				return 0, c.failed
			}
			c.pending = append(c.pending, b...)
			return len(b), nil
		}
	}
	return (*p).Write(b)
}

// findKey reads the first bytes, and writes what had to wait for them.
func (c *keyedConn) findKey() error {
	head := make([]byte, nonceSize+len(firstBytes))
	n, err := io.ReadFull(c.Conn, head)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
	if c.failed == nil {
		c.failed = c.choose(head)
	}
	if c.scope != nil && n > 0 && (err != nil || errors.Is(c.failed, errNoKey)) {
		c.scope.setForeign()
	}
	if c.failed == nil && len(c.pending) > 0 {
		_, c.failed = (*c.protected.Load()).Write(c.pending)
		c.pending = nil
	}
	return c.failed
}

// choose protects the connection by the key that head was encrypted with.
func (c *keyedConn) choose(head []byte) error {
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	for _, k := range c.ring.keys {
		p, err := private.NewProtectedConn(pnet.PSK(k[:]), &replay{Conn: c.Conn, first: head})
		if err != nil {
			return err
		}
		text := make([]byte, len(firstBytes))
		if _, err := io.ReadFull(p, text); err == nil && bytes.Equal(text, []byte(firstBytes)) {
			c.key = k
			return c.protect(&replay{Conn: c.Conn, first: head})
		}
	}
	return errNoKey
}

func (c *keyedConn) Close() error {
	c.ring.remove(c)
	return c.Conn.Close()
}

// replay is a connection the first bytes of which were read already.
type replay struct {
	net.Conn
	first []byte
}

func (r *replay) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

// keyedUpgrader is libp2p's upgrader, for connections that a keyring protects.
type keyedUpgrader struct {
	transport.Upgrader
	ring *keyring
}

func (u keyedUpgrader) UpgradeListener(t transport.Transport, l manet.Listener) transport.Listener {
	return u.UpgradeGatedMaListener(t, u.GateMaListener(l))
}

func (u keyedUpgrader) UpgradeGatedMaListener(t transport.Transport, l transport.GatedMaListener) transport.Listener {
	return u.Upgrader.UpgradeGatedMaListener(t, keyedListener{l, u.ring})
}

func (u keyedUpgrader) Upgrade(ctx context.Context, t transport.Transport, c manet.Conn, dir network.Direction, p peer.ID, scope network.ConnManagementScope) (transport.CapableConn, error) {
	kc, err := u.ring.outbound(c, p)
	if err != nil {
		c.Close()
		scope.Done()
		return nil, err
	}
	tc, err := u.Upgrader.Upgrade(ctx, t, kc, dir, p, scope)
	u.ring.dialed(p, err)
	if err != nil {
		u.ring.remove(kc)
	}
	return tc, err
}

// keyedListener has connections that come in find their key.
type keyedListener struct {
	transport.GatedMaListener
	ring *keyring
}

func (l keyedListener) Accept() (manet.Conn, network.ConnManagementScope, error) {
	c, scope, err := l.GatedMaListener.Accept()
	if err != nil {
		return nil, nil, err
	}
	s, _ := scope.(*connScope)
	return &keyedConn{Conn: c, ring: l.ring, scope: s}, scope, nil
}

// watch ends connections whose other end does not acknowledge any more what was
// sent to it, until ctx ends: a cable is cut, or the host is dead. A process that
// stands still does not look like that, since its kernel goes on.
func (r *keyring) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var all []*keyedConn
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all = all[:0]
		r.mu.Lock()
		for c := range r.conns {
			all = append(all, c)
		}
		r.mu.Unlock()
		for _, c := range all {
			if cutOff(c.Conn) {
				_ = c.Conn.Close()
			}
		}
		clear(all)
	}
}
