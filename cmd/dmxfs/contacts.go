package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"dmxfs/p2p"
	"dmxfs/p2p/member"
)

// recordsEvery is how often the records of the peers on the shared directory
// are read that this node misses: they matter to one that finds nobody.
const recordsEvery = 5 * time.Second

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

// readRecords gives the host the addresses that peers have left on the shared
// directory. The host tries them when it wants such a peer. It is for the
// start: records are kept for a month after their peers have gone.
func (d *daemon) readRecords() {
	records, err := d.register.Records()
	if err != nil {
		d.log.Debug("the address records on the shared directory cannot be read", "err", err)
		return
	}
	for p, b := range records {
		d.addRecord(p, b)
	}
}

func (d *daemon) addRecord(p string, b []byte) {
	if _, err := d.host.AddRecord(b); err != nil {
		d.log.Debug("an address record on the shared directory is of no use", "peer", p, "err", err)
	}
}

// readMissing is readRecords for those who are wanted and not connected.
func (d *daemon) readMissing() {
	for _, p := range missing(d.transport.Peers()) {
		switch b, err := d.register.Record(p); {
		case err != nil:
			d.log.Debug("an address record on the shared directory cannot be read", "peer", p, "err", err)
		case b != nil:
			d.addRecord(p, b)
		}
	}
}

// missing are the peers that this node should be connected with and is not.
func missing(all []p2p.PeerInfo) []string {
	var list []string
	for _, p := range all {
		if p.Wanted && !p.Connected {
			list = append(list, p.ID.String())
		}
	}
	return list
}

// tellAddrs tells the membership where this node can be reached now.
func (d *daemon) tellAddrs(ctx context.Context) {
	addrs, err := d.host.OwnAddrs()
	if err != nil {
		d.log.Warn("own addresses", "err", err)
		return
	}
	var list []string
	for _, a := range addrs[:min(len(addrs), member.MaxAddrs)] {
		list = append(list, a.String())
	}
	if n := d.node.Load(); n != nil {
		_ = n.SetAddrs(ctx, list) // it fails only when there is no membership any more
	}
}

// tried says what came of reaching a newcomer that asks on the storage.
func (d *daemon) tried(to string) []member.Tried {
	var out []member.Tried
	for _, p := range d.transport.Peers() {
		if p.ID.String() != to {
			continue
		}
		why := "connected"
		if !p.Connected {
			why = "not tried yet"
			if p.DialErr != nil {
				why = p.DialErr.Error()
			}
		}
		for _, a := range p.Addrs {
			out = append(out, member.Tried{Addr: a, Error: why})
		}
	}
	return out
}
