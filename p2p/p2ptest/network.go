package p2ptest

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

// PeerID is the n-th of a fixed list of valid peer IDs. They are not in order.
func PeerID(n int) peer.ID {
	seed := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("p2ptest"), uint64(n)))
	key, err := crypto.UnmarshalEd25519PrivateKey(ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		panic(err) // it is 64 bytes
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		panic(err)
	}
	return id
}

// Link is one direction between two endpoints.
type Link struct {
	// Latency is how long everything takes at least, Jitter what may come on
	// top, evenly spread.
	Latency, Jitter time.Duration
	// Cut holds everything back.
	Cut bool
}

// Network is what endpoints are connected by. All methods are safe for
// concurrent use.
type Network struct {
	mu        sync.Mutex
	rand      *rand.Rand
	usual     Link
	links     map[[2]peer.ID]Link
	changed   chan struct{} // closed, and made anew, when a link changes
	endpoints map[peer.ID]*Endpoint
	conns     map[*conn]struct{}
}

// New makes a network whose links are all like usual, until they are set
// otherwise.
func New(seed uint64, usual Link) *Network {
	return &Network{
		rand:      rand.New(rand.NewPCG(seed, 0)),
		usual:     usual,
		links:     make(map[[2]peer.ID]Link),
		changed:   make(chan struct{}),
		endpoints: make(map[peer.ID]*Endpoint),
		conns:     make(map[*conn]struct{}),
	}
}

// Endpoint makes the endpoint of a peer. It answers from when its Run is
// called. A peer has one at a time: the next one can run when the one before
// has ended.
func (n *Network) Endpoint(id peer.ID) *Endpoint {
	return &Endpoint{n: n, id: id, ready: make(chan struct{}), conns: make(map[peer.ID][]*end)}
}

// Set sets the link from one peer to another, in this direction only.
func (n *Network) Set(from, to peer.ID, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[[2]peer.ID{from, to}] = l
	n.signal()
}

// Get is the link from one peer to another.
func (n *Network) Get(from, to peer.ID) Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.link(from, to)
}

// Cut cuts the link in one direction, and Heal lets through again what it held.
func (n *Network) Cut(from, to peer.ID) { n.setCut(from, to, true) }

// Heal is the reverse of Cut.
func (n *Network) Heal(from, to peer.ID) { n.setCut(from, to, false) }

func (n *Network) setCut(from, to peer.ID, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(from, to)
	l.Cut = cut
	n.links[[2]peer.ID{from, to}] = l
	n.signal()
}

// Break ends all connections between two peers, as a reset does. What was on
// its way is lost. Both may connect again at once.
func (n *Network) Break(a, b peer.ID) {
	n.mu.Lock()
	var broken []*conn
	for c := range n.conns {
		if c.between(a, b) {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.ends[0].close(errBroken)
		c.ends[1].close(errBroken)
	}
}

var errBroken = fmt.Errorf("p2ptest: connection reset")

// link is Get. REQUIRES: mu held.
func (n *Network) link(from, to peer.ID) Link {
	if l, ok := n.links[[2]peer.ID{from, to}]; ok {
		return l
	}
	return n.usual
}

// signal wakes who waits for a link. REQUIRES: mu held.
func (n *Network) signal() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// transit draws how long something takes that is sent now.
func (n *Network) transit(from, to peer.ID) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(from, to)
	d := l.Latency
	if l.Jitter > 0 {
		d += time.Duration(n.rand.Int64N(int64(l.Jitter)))
	}
	return d
}

// patience draws how long an end of a connection waits for a sign of life.
func (n *Network) patience() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return keepAlive + time.Duration(n.rand.Int64N(int64(keepAlive)))
}

// open says whether the link lets anything through, and what to wait for.
func (n *Network) open(from, to peer.ID) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.link(from, to).Cut, n.changed
}
