package p2p

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
	blankhost "github.com/libp2p/go-libp2p/p2p/host/blank"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
)

// serviceName is the DNS-SD service of a cluster. It is made from the name of
// the cluster, so that nodes of two clusters do not even see each other, and is
// hashed, because a label has at most 15 characters (RFC 6763, section 7.2).
func serviceName(cluster string) string {
	sum := sha256.Sum256([]byte("dmxfs mdns " + cluster))
	return "_dmx" + hex.EncodeToString(sum[:5]) + "._udp"
}

// newService makes the mDNS service, which wants a whole host and asks it only
// for its ID and its network. REQUIRES: the stream handler of sw is set later,
// since the host sets its own.
func newService(h *Host, sw *swarm.Swarm) (mdns.Service, error) {
	bh := blankhost.NewBlankHost(sw, blankhost.WithEventBus(eventbus.NewBus()))
	if bh == nil {
		return nil, errors.New("p2p: mDNS: can't make a host")
	}
	return mdns.NewMdnsService(bh, serviceName(h.o.Cluster), (*notifee)(h)), nil
}

// startService announces this node and listens for others.
func startService(s mdns.Service) error {
	if err := s.Start(); err != nil {
		return fmt.Errorf("p2p: mDNS: %w (is there an interface that is up and can multicast?)", err)
	}
	return nil
}

// notifee is the host as mDNS sees it.
type notifee Host

// HandlePeerFound is called, in a goroutine of its own, for each answer.
// Nothing is proven yet of the peer: dialing it will show whether it is one.
func (n *notifee) HandlePeerFound(p peer.AddrInfo) {
	h := (*Host)(n)
	if p.ID == h.ID() || h.gater.mayConnect(p.ID) != nil {
		return
	}
	if err := h.book.set(p.ID, fromMDNS, p.Addrs, 0); err != nil {
		h.log.warnOnce("mdns", "a peer found by mDNS was left out", "peer", p.ID, "err", err)
		return
	}
	if h.o.Found != nil {
		h.o.Found(p.ID)
	}
}
