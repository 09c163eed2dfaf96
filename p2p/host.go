package p2p

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"
)

// Options are what a [Host] is made of.
type Options struct {
	// Identity is the key of this node.
	Identity Identity
	// Secret keeps out everybody who does not know it.
	Secret Secret
	// Listen are TCP addresses, like /ip4/192.0.2.1/tcp/7654. None means
	// [DefaultListen]. It is an error if one of them can't be had.
	Listen []ma.Multiaddr
	// Again are addresses that this node listened on before, where its peers look
	// for it still: they are taken in the place of those of Listen that leave the
	// port open, if they can be had.
	Again []ma.Multiaddr
	// Cluster names the cluster in mDNS; needed when MDNS is set.
	Cluster string
	// MDNS announces this node on all interfaces that can multicast, and
	// listens there for others of the same cluster.
	MDNS bool
	// Found is told of the peers that mDNS finds. Their addresses are known to
	// the host already. It may be nil.
	Found func(peer.ID)
	// Allow says whether a peer may be connected; nil allows all that know the
	// secret. It is called often, from many goroutines, and must not block.
	Allow func(peer.ID) bool
	// Offline: nobody is connected before [Host.SetOnline].
	Offline bool
	// Log gets what operators should know; nil for nothing.
	Log *slog.Logger

	// In tests: how long a write may take (0: stallTimeout), and whether this node
	// is as those of versions before there were lanes.
	stall   time.Duration
	noLanes bool
}

// DefaultListen is any port on all interfaces.
func DefaultListen() []ma.Multiaddr {
	return []ma.Multiaddr{ma.StringCast("/ip4/0.0.0.0/tcp/0"), ma.StringCast("/ip6/::/tcp/0")}
}

// Host is this node in the network of the cluster: TCP, a private network by
// the cluster secret, Noise, yamux. It is the [Network] of a [Transport].
type Host struct {
	o     Options
	log   *limitedLog
	gater *gater
	ring  *keyring
	book  *addrBook
	muxer *multistream.MultistreamMuxer[protocol.ID]
	ready chan struct{} // closed when it listens

	recordMu sync.Mutex
	record   []byte // see Record
	recorded []ma.Multiaddr

	mu    sync.Mutex
	swarm *swarm.Swarm // nil before it listens and after Run
	conns map[peer.ID]int
	ended bool

	evMu  sync.Mutex     // orders calls of ev.Opened and ev.Closed; taken before mu
	serve sync.WaitGroup // calls of ev.Accept
	crowd chan peer.ID   // peers with more than one connection, see settler
}

// NewHost checks the options. It does not listen before Run.
func NewHost(o Options) (*Host, error) {
	if o.Identity.IsZero() {
		return nil, errors.New("p2p: no identity")
	}
	if o.Secret.IsZero() {
		return nil, errors.New("p2p: no cluster secret")
	}
	if o.MDNS && o.Cluster == "" {
		return nil, errors.New("p2p: mDNS needs the name of the cluster")
	}
	for _, a := range o.Listen {
		if !isTCP(a) {
			return nil, fmt.Errorf("p2p: can't listen on %s: only TCP addresses like /ip4/0.0.0.0/tcp/7654 are possible", a)
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.stall == 0 {
		o.stall = stallTimeout
	}
	log := newLimitedLog(o.Log)
	h := &Host{
		o:     o,
		log:   log,
		gater: newGater(o.Allow, log, o.Offline),
		ring:  newKeyring(o.Secret),
		book:  newAddrBook(),
		muxer: multistream.NewMultistreamMuxer[protocol.ID](),
		ready: make(chan struct{}),
		conns: make(map[peer.ID]int),
		crowd: make(chan peer.ID, 16),
	}
	for _, p := range []protocol.ID{memberProtocol, lockProtocol, syncProtocol, askProtocol} {
		h.muxer.AddHandler(p, nil)
	}
	return h, nil
}

// ID is the peer ID of this node.
func (h *Host) ID() peer.ID { return h.o.Identity.id }

// Ready is closed when the host listens. It never is when Run fails before.
func (h *Host) Ready() <-chan struct{} { return h.ready }

// Run listens and serves until ctx is done. See [Network].
func (h *Host) Run(ctx context.Context, ev Events) (err error) {
	sw, err := h.newSwarm()
	if err != nil {
		return fmt.Errorf("p2p: %w", err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		h.mu.Lock()
		h.ended = true
		h.mu.Unlock()
		_ = sw.Close() // ends all streams; waits for its own goroutines
		_ = sw.Peerstore().Close()
		h.serve.Wait()
		wg.Wait()
	}()
	var service mdns.Service
	if h.o.MDNS {
		if service, err = newService(h, sw); err != nil {
			return err
		}
		defer func() { _ = service.Close() }()
	}
	sw.Notify(&network.NotifyBundle{
		ConnectedF:    func(_ network.Network, c network.Conn) { h.connected(ev, c) },
		DisconnectedF: func(_ network.Network, c network.Conn) { h.disconnected(ev, c) },
	})
	sw.SetStreamHandler(func(s network.Stream) { h.accept(ev, s) })
	if err := h.listen(sw); err != nil {
		return err
	}
	h.mu.Lock()
	h.swarm = sw
	h.mu.Unlock()
	wg.Go(func() { (&settler{sw, h.ID(), h.crowd, h.log}).run(ctx) })
	wg.Go(func() { h.ring.watch(ctx) })
	if service != nil {
		if err := startService(service); err != nil {
			return err
		}
	}
	close(h.ready)
	<-ctx.Done()
	return nil
}

// SetSecrets changes the secret while the host runs. Peers are dialed with the
// first of them, and with the second if they do not know that one; they may
// connect with any. Connections that were made with another one end. There is
// at least one.
func (h *Host) SetSecrets(first Secret, also ...Secret) {
	h.ring.set(append([]Secret{first}, also...))
}

// running returns the swarm.
func (h *Host) running() (*swarm.Swarm, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.swarm == nil || h.ended {
		return nil, ErrClosed
	}
	return h.swarm, nil
}
