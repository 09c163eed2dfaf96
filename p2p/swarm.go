package p2p

import (
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"
)

// Times of connections. A peer of whose streams nothing comes for keepAlive is asked
// for a sign of life. The end of a process is known at once, and a cut cable after two or
// three seconds, from its kernel (see cutOff). A process that stands still, as
// its host does under load, keeps its connections for at least half of
// stallTimeout, which is what a write may take, and an answer, and so for longer than
// a tenure by default: whether it is still a member is not decided here.
const (
	keepAlive    = time.Second
	stallTimeout = 12 * time.Second
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
		swarm.WithConnectionGater(h.gater),
		swarm.WithResourceManager(h.gater),
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
	mux.ConnectionWriteTimeout = h.o.stall
	mux.MaxIncomingStreams = maxStreams
	mux.MaxStreamWindowSize = streamWindow
	muxers := []upgrader.StreamMuxer{
		{ID: lanesID, Muxer: countingMuxer{lanesMuxer{&mux, h.o.stall, h.log}}},
		{ID: yamux.ID, Muxer: countingMuxer{&mux}},
	}
	if h.o.noLanes {
		muxers = muxers[1:]
	}
	secure, err := noise.New(noise.ID, h.o.Identity.key, muxers)
	if err != nil {
		return err
	}
	up, err := upgrader.New([]sec.SecureTransport{secure}, muxers, nil, h.gater, h.gater,
		upgrader.WithAcceptTimeout(acceptTimeout))
	if err != nil {
		return err
	}
	// Without reuse of the listening port: two nodes that dial each other at
	// the same time would meet in one half-made connection.
	t, err := tcp.NewTCPTransport(keyedUpgrader{up, h.ring}, h.gater, nil, tcp.DisableReuseport(), tcp.WithConnectionTimeout(connectTimeout))
	if err != nil {
		return err
	}
	return sw.AddTransport(t)
}

// again is the address with a port, of those that this node had before, in the place
// of one that leaves it open; nil if there is none.
func (h *Host) again(a ma.Multiaddr) ma.Multiaddr {
	if port, err := a.ValueForProtocol(ma.P_TCP); err != nil || port != "0" {
		return nil
	}
	for _, x := range h.o.Again {
		if len(x) == 2 && isTCP(x) && x[0].Equal(&a[0]) {
			return x
		}
	}
	return nil
}

func (h *Host) listen(sw *swarm.Swarm) error {
	addrs, lenient := h.o.Listen, false
	if len(addrs) == 0 {
		addrs, lenient = DefaultListen(), true // a host may lack IPv4, or IPv6
	}
	var errs []error
	for _, a := range addrs {
		if again := h.again(a); again != nil && sw.AddListenAddr(again) == nil {
			continue
		}
		if err := sw.AddListenAddr(a); err != nil {
			errs = append(errs, fmt.Errorf("p2p: can't listen on %s: %w", a, err))
		}
	}
	if len(errs) == len(addrs) || len(errs) > 0 && !lenient {
		return errors.Join(errs...)
	}
	return nil
}
