package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	maxAddrs = 16   // of one peer from one source
	maxBook  = 1024 // peers
)

// source is where an address was heard of.
type source int

const (
	fromCaller source = iota // SetAddrs
	fromRecord               // AddRecord
	fromMDNS
	sources
)

// addrBook holds the addresses of peers. Each source replaces what it said
// before, so that a peer that has moved is not looked for at its old places
// for ever.
type addrBook struct {
	mu    sync.Mutex
	peers map[peer.ID]*entry
}

type entry struct {
	addrs [sources][]ma.Multiaddr
	seq   uint64 // of the last record
}

func newAddrBook() *addrBook { return &addrBook{peers: make(map[peer.ID]*entry)} }

// set replaces what from says of p. With a record goes its sequence number,
// which must not be less than that of the last one.
func (b *addrBook) set(p peer.ID, from source, addrs []ma.Multiaddr, seq uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.peers[p]
	if e == nil {
		if len(b.peers) >= maxBook && !b.makeRoom(from) {
			return fmt.Errorf("addresses of %d peers are known already", len(b.peers))
		}
		e = new(entry)
		b.peers[p] = e
	}
	if from == fromRecord {
		if seq < e.seq {
			return fmt.Errorf("%w: %d is older than %d", ErrStaleRecord, seq, e.seq)
		}
		e.seq = seq
	}
	e.addrs[from] = usable(p, addrs)
	return nil
}

// makeRoom reports whether there may be one more peer, and drops one for it if
// it can: the one that nobody wants with the oldest record, or none. What mDNS
// says is not proven and drops nobody.
func (b *addrBook) makeRoom(from source) bool {
	if from == fromMDNS {
		return false
	}
	var oldest peer.ID
	for p, e := range b.peers {
		if len(e.addrs[fromCaller]) == 0 && (oldest == "" || e.seq < b.peers[oldest].seq) {
			oldest = p
		}
	}
	delete(b.peers, oldest)
	return oldest != "" || from == fromCaller
}

// get is what to dial for p: what was said by the caller first.
func (b *addrBook) get(p peer.ID) []ma.Multiaddr {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.peers[p]
	if e == nil {
		return nil
	}
	var all []ma.Multiaddr
	for _, addrs := range e.addrs {
		for _, a := range addrs {
			if !slices.ContainsFunc(all, a.Equal) {
				all = append(all, a)
			}
		}
	}
	return all
}

// usable leaves out what can't be dialed over TCP, and what is too much. An
// address may end in /p2p/PEER, if that is p.
func usable(p peer.ID, addrs []ma.Multiaddr) []ma.Multiaddr {
	var ok []ma.Multiaddr
	for _, a := range addrs {
		a, id := peer.SplitAddr(a)
		if id != "" && id != p || !isTCP(a) || manet.IsIPUnspecified(a) || manet.IsIP6LinkLocal(a) {
			continue
		}
		if len(ok) == maxAddrs {
			break
		}
		ok = append(ok, a)
	}
	return ok
}

// ParseListen reads an address to listen on, as an option of a command gives it.
func ParseListen(s string) (ma.Multiaddr, error) {
	a, err := ma.NewMultiaddr(s)
	if err != nil || !isTCP(a) {
		return nil, fmt.Errorf("p2p: can't listen on %q: want an address like /ip4/0.0.0.0/tcp/7654 or /ip6/::/tcp/7654", s)
	}
	return a, nil
}

// ParsePeer reads the address of a peer, with its ID.
func ParsePeer(s string) (peer.AddrInfo, error) {
	if a, err := ma.NewMultiaddr(s); err == nil {
		if info, err := peer.AddrInfoFromP2pAddr(a); err == nil && len(usable(info.ID, info.Addrs)) == 1 {
			return *info, nil
		}
	}
	return peer.AddrInfo{}, fmt.Errorf("p2p: %q is not the address of a peer: want one like /ip4/192.0.2.1/tcp/7654/p2p/12D3KooW…", s)
}

// isTCP accepts /ip4, /ip6, /dns, /dns4 or /dns6, followed by /tcp alone.
func isTCP(a ma.Multiaddr) bool {
	if len(a) != 2 || a[1].Protocol().Code != ma.P_TCP {
		return false
	}
	switch a[0].Protocol().Code {
	case ma.P_IP4, ma.P_IP6, ma.P_DNS, ma.P_DNS4, ma.P_DNS6:
		return true
	}
	return false
}

// SetAddrs says where a peer may be. See [Network].
func (h *Host) SetAddrs(p peer.AddrInfo) { _ = h.book.set(p.ID, fromCaller, p.Addrs, 0) }

// Addrs are the addresses at which p is dialed.
func (h *Host) Addrs(p peer.ID) []string {
	var s []string
	for _, a := range h.book.get(p) {
		s = append(s, a.String())
	}
	return s
}

// Listening are the addresses that this node listens on, with their ports.
func (h *Host) Listening() []ma.Multiaddr {
	sw, err := h.running()
	if err != nil {
		return nil
	}
	return sw.ListenAddresses()
}

// OwnAddrs are the addresses of this node, as others may reach it: the interfaces
// in the place of "all interfaces", those of the host itself last. They change
// when an interface gets another address; that is known within a minute.
func (h *Host) OwnAddrs() ([]ma.Multiaddr, error) {
	sw, err := h.running()
	if err != nil {
		return nil, err
	}
	addrs, err := sw.InterfaceListenAddresses()
	if err != nil {
		return nil, fmt.Errorf("p2p: own addresses: %w", err)
	}
	addrs = slices.DeleteFunc(ma.Unique(addrs), manet.IsIP6LinkLocal)
	slices.SortStableFunc(addrs, func(a, b ma.Multiaddr) int {
		if la, lb := manet.IsIPLoopback(a), manet.IsIPLoopback(b); la != lb {
			if la {
				return 1
			}
			return -1
		}
		return a.Compare(b)
	})
	return addrs, nil
}

var errOffline = errors.New("this node has no connections for now")

// Connect dials p at all its known addresses at once. See [Network].
func (h *Host) Connect(ctx context.Context, p peer.ID) error {
	sw, err := h.running()
	if err != nil {
		return err
	}
	if err := h.gater.mayConnect(p); err != nil {
		return err
	}
	if h.gater.offline.Load() {
		return errOffline
	}
	if sw.Connectedness(p) == network.Connected {
		return nil
	}
	addrs := h.book.get(p)
	if len(addrs) == 0 {
		return ErrNoAddress
	}
	ps := sw.Peerstore()
	ps.ClearAddrs(p)
	ps.AddAddrs(p, addrs, peerstore.TempAddrTTL)
	sw.Backoff().Clear(p) // the transport has pauses of its own
	// Each address has its own time limit; this one comes after it, since the
	// errors of the addresses say more.
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+time.Second)
	defer cancel()
	if _, err := sw.DialPeer(ctx, p); err != nil {
		return explain(err)
	}
	return nil
}

// explain turns an error of a dial into one that says what to do.
func explain(err error) error {
	var dial *swarm.DialError
	if !errors.As(err, &dial) || len(dial.DialErrors) == 0 {
		return fmt.Errorf("dial: %w", err)
	}
	var lines []string
	var reason error
	for _, te := range dial.DialErrors {
		text := te.Cause.Error()
		var other sec.ErrPeerIDMismatch
		switch {
		case errors.As(te.Cause, &other):
			text = fmt.Sprintf("another node answers there, %s", other.Actual)
		case !strings.Contains(text, "failed to negotiate"): // not connected at all
		case errors.Is(te.Cause, context.DeadlineExceeded):
			// What another key makes of the first bytes may ask for more of them.
			reason = errHandshake
			text = "did not answer the handshake: it is stopped or overloaded, or has another cluster secret"
		default:
			reason = ErrRefused
			text = "closed the connection in the handshake: it has another cluster secret, does not admit this node, or is no dmxfs"
		}
		lines = append(lines, fmt.Sprintf("%s: %s", te.Address, text))
	}
	if reason != nil {
		return fmt.Errorf("dial: %w: %s", reason, strings.Join(lines, "; "))
	}
	return fmt.Errorf("dial: %s", strings.Join(lines, "; "))
}

var errHandshake = errors.New("no handshake")
