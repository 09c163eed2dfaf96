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
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"
)

// Times of connections. A peer that is silent for keepAlive is asked for a sign
// of life, and given up when there is none within writeTimeout: so a cut cable
// is known after one or two seconds, and the end of a process at once.
const (
	keepAlive    = time.Second
	writeTimeout = time.Second
	// connectTimeout is short, so that a try that fell into an outage does not
	// outlast it by much.
	connectTimeout = time.Second
	// dialTimeout bounds a dial with its handshake, acceptTimeout a handshake
	// of a connection that came in. A process that is stopped for some seconds
	// still gets through.
	dialTimeout   = 5 * time.Second
	acceptTimeout = 10 * time.Second
)

// maxStreams is how many streams a peer may have open on one connection: one
// of each channel, those that replace them, and its questions.
const maxStreams = 4 * askEach

// streamWindow is how much of one stream may be on its way. It is what the
// multiplexer begins with, and it stays at that, so that a transfer of a large
// state does not delay what goes on the same connection.
const streamWindow = 256 << 10

// Options are what a [Host] is made of.
type Options struct {
	// Identity is the key of this node.
	Identity Identity
	// Secret keeps out everybody who does not know it.
	Secret Secret
	// Listen are TCP addresses, like /ip4/192.0.2.1/tcp/7654. None means
	// [DefaultListen]. It is an error if one of them can't be had.
	Listen []ma.Multiaddr
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
	// Log gets what operators should know; nil for nothing.
	Log *slog.Logger
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
	gate  *gate
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
	crowd chan peer.ID   // peers with more than one connection, see settle
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
	log := newLimitedLog(o.Log)
	h := &Host{
		o:     o,
		log:   log,
		gate:  newGate(o.Allow, log),
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
		if service, err = h.newService(sw); err != nil {
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
	wg.Go(func() { h.settle(ctx, sw) })
	if service != nil {
		if err := startService(service); err != nil {
			return err
		}
	}
	close(h.ready)
	<-ctx.Done()
	return nil
}

// newSwarm puts the parts of libp2p together that dmxfs uses. What libp2p.New
// adds to them (QUIC, WebRTC, relays, hole punching, identify) is of no use
// behind a private network key, and would double the size of the program.
func (h *Host) newSwarm() (*swarm.Swarm, error) {
	ps, err := pstoremem.NewPeerstore()
	if err != nil {
		return nil, err
	}
	id, key := h.o.Identity.id, h.o.Identity.key
	if err := errors.Join(ps.AddPrivKey(id, key), ps.AddPubKey(id, key.GetPublic())); err != nil {
		return nil, err
	}
	sw, err := swarm.NewSwarm(id, ps, eventbus.NewBus(),
		swarm.WithConnectionGater(h.gate),
		swarm.WithResourceManager(h.gate),
		swarm.WithDialTimeout(dialTimeout),
		swarm.WithDialTimeoutLocal(dialTimeout),
		swarm.WithDialRanker(swarm.NoDelayDialRanker),
		swarm.WithUDPBlackHoleSuccessCounter(nil),
		swarm.WithIPv6BlackHoleSuccessCounter(nil),
	)
	if err != nil {
		return nil, errors.Join(err, ps.Close())
	}
	if err := h.addTCP(sw); err != nil {
		return nil, errors.Join(err, sw.Close(), ps.Close())
	}
	return sw, nil
}

func (h *Host) addTCP(sw *swarm.Swarm) error {
	mux := *yamux.DefaultTransport
	mux.KeepAliveInterval = keepAlive
	mux.ConnectionWriteTimeout = writeTimeout
	mux.MaxIncomingStreams = maxStreams
	mux.MaxStreamWindowSize = streamWindow
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: &mux}}
	secure, err := noise.New(noise.ID, h.o.Identity.key, muxers)
	if err != nil {
		return err
	}
	up, err := upgrader.New([]sec.SecureTransport{secure}, muxers, h.o.Secret.key(), h.gate, h.gate,
		upgrader.WithAcceptTimeout(acceptTimeout))
	if err != nil {
		return err
	}
	// Without reuse of the listening port: two nodes that dial each other at
	// the same time would meet in one half-made connection.
	t, err := tcp.NewTCPTransport(up, h.gate, nil, tcp.DisableReuseport(), tcp.WithConnectionTimeout(connectTimeout))
	if err != nil {
		return err
	}
	return sw.AddTransport(t)
}

func (h *Host) listen(sw *swarm.Swarm) error {
	addrs, lenient := h.o.Listen, false
	if len(addrs) == 0 {
		addrs, lenient = DefaultListen(), true // a host may lack IPv4, or IPv6
	}
	var errs []error
	for _, a := range addrs {
		if err := sw.AddListenAddr(a); err != nil {
			errs = append(errs, fmt.Errorf("p2p: can't listen on %s: %w", a, err))
		}
	}
	if len(errs) == len(addrs) || len(errs) > 0 && !lenient {
		return errors.Join(errs...)
	}
	return nil
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

func (h *Host) connected(ev Events, c network.Conn) {
	h.evMu.Lock()
	defer h.evMu.Unlock()
	p := c.RemotePeer()
	h.mu.Lock()
	h.conns[p]++
	n := h.conns[p]
	h.mu.Unlock()
	h.log.Debug("connected", "peer", p, "addr", c.RemoteMultiaddr(), "dir", c.Stat().Direction, "conns", n)
	if h.gate.admit(p) != nil { // revoked while the connection was made
		_ = c.Close()
	}
	if n > 1 {
		select {
		case h.crowd <- p:
		default:
		}
	}
	ev.Opened(p)
}

func (h *Host) disconnected(ev Events, c network.Conn) {
	h.evMu.Lock()
	defer h.evMu.Unlock()
	p := c.RemotePeer()
	h.mu.Lock()
	h.conns[p]--
	n := h.conns[p]
	if n == 0 {
		delete(h.conns, p)
	}
	h.mu.Unlock()
	h.log.Debug("disconnected", "peer", p, "addr", c.RemoteMultiaddr(), "conns", n)
	if n == 0 {
		ev.Closed(p)
	}
}

// accept finds out what an inbound stream is for, and serves it.
func (h *Host) accept(ev Events, s network.Stream) {
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		_ = s.Reset()
		return
	}
	h.serve.Add(1)
	h.mu.Unlock()
	defer h.serve.Done()
	p := s.Conn().RemotePeer()
	_ = s.SetDeadline(time.Now().Add(openTimeout))
	proto, _, err := h.muxer.Negotiate(s)
	if err != nil {
		h.log.warnOnce("negotiate:"+string(p), "refused a stream of a peer: it speaks no protocol of this version of dmxfs",
			"peer", p, "addr", s.Conn().RemoteMultiaddr(), "err", err)
		_ = s.Reset()
		return
	}
	_ = s.SetDeadline(time.Time{})
	ev.Accept(p, proto, hostStream{s})
	_ = s.Close() // no harm if it was closed or reset
}

// Open opens a stream on the newest connection to p: when one side has lost a
// connection that the other still believes in, the newest is the true one.
func (h *Host) Open(ctx context.Context, p peer.ID, proto protocol.ID) (Stream, error) {
	sw, err := h.running()
	if err != nil {
		return nil, err
	}
	var best network.Conn
	for _, c := range sw.ConnsToPeer(p) {
		if !c.IsClosed() && (best == nil || c.Stat().Opened.After(best.Stat().Opened)) {
			best = c
		}
	}
	if best == nil {
		return nil, ErrNotConnected
	}
	s, err := best.NewStream(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	err = multistream.SelectProtoOrFail(proto, s)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = s.Reset()
		var not multistream.ErrNotSupported[protocol.ID]
		if errors.As(err, &not) {
			err = fmt.Errorf("%w: %s at %s does not speak %s", ErrProtocol, p, best.RemoteMultiaddr(), proto)
		}
		return nil, err
	}
	return hostStream{s}, nil
}

// Conns are the connections to p, the oldest first.
func (h *Host) Conns(p peer.ID) []Conn {
	sw, err := h.running()
	if err != nil {
		return nil
	}
	var conns []Conn
	for _, c := range sw.ConnsToPeer(p) {
		st := c.Stat()
		conns = append(conns, Conn{c.RemoteMultiaddr().String(), st.Direction == network.DirInbound, st.Opened})
	}
	return conns
}

// Revoke puts peers in the place of the revoked ones, and ends the connections
// to them.
func (h *Host) Revoke(peers []peer.ID) {
	h.gate.setRevoked(peers)
	sw, err := h.running()
	if err != nil {
		return
	}
	for _, p := range peers {
		_ = sw.ClosePeer(p)
	}
}

// hostStream is a Stream on libp2p.
type hostStream struct{ network.Stream }

func (s hostStream) Remote() string { return s.Conn().RemoteMultiaddr().String() }
