package daemon

import (
	"fmt"
	"slices"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// contacts are where other daemons may be, as this host knows.
type contacts struct {
	mu    sync.Mutex
	given []member.Contact // --peer
}

// static takes the values of --peer.
func (c *contacts) static(list []string) error {
	for _, s := range list {
		info, err := peer.AddrInfoFromString(s)
		if err != nil {
			return fmt.Errorf("%q is not a multiaddr like /ip4/192.0.2.1/tcp/7654/p2p/ID: %w", s, err)
		}
		c.given = append(c.given, contact(*info))
	}
	return nil
}

func contact(info peer.AddrInfo) member.Contact {
	m := member.Contact{Peer: info.ID.String()}
	for _, a := range info.Addrs {
		m.Addrs = append(m.Addrs, a.String())
	}
	return m
}

func addrInfo(c member.Contact) (peer.AddrInfo, error) {
	id, err := peer.Decode(c.Peer)
	info := peer.AddrInfo{ID: id}
	for _, s := range c.Addrs {
		if a, err := ma.NewMultiaddr(s); err == nil {
			info.Addrs = append(info.Addrs, a)
		}
	}
	return info, err
}

// list is all that may be tried.
func (c *contacts) list() []member.Contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.given)
}
