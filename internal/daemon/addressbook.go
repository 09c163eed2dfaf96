package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// recordsEvery is how often the records of the peers on the shared directory
// are read that this node misses: they matter to one that finds nobody.
const recordsEvery = 5 * time.Second

// addressBook finds the other members: by the records on the shared directory,
// where it keeps this node's own.
type addressBook struct {
	contacts
	register  *register.Dir
	host      *p2p.Host
	transport *p2p.Transport
	node      *atomic.Pointer[cluster.Node]
	log       *slog.Logger

	// online is closed when others may find this node for the first time.
	online     chan struct{}
	onlineOnce sync.Once
	// recorded is closed when this node's record is there for the first time.
	recorded chan struct{}
	// leaves: this node removes its record itself.
	leaves atomic.Bool
}

// seen: others may find this node now.
func (ab *addressBook) seen() { ab.onlineOnce.Do(func() { close(ab.online) }) }

// keep keeps this node's address record fresh and reads those of the
// others that it misses.
func (ab *addressBook) keep(ctx context.Context) {
	tick := time.NewTicker(recordsEvery)
	defer tick.Stop()
	var last []byte
	var written time.Time
	ab.readRecords()
	select {
	case <-ctx.Done():
		return
	case <-ab.online:
	}
	for {
		b, err := ab.host.Record()
		switch {
		case err != nil:
			ab.log.Warn("own address record", "err", err)
		case !bytes.Equal(b, last) || time.Since(written) > 12*time.Hour || ab.isForgotten():
			if err := ab.register.WriteRecord(b); err != nil {
				ab.log.Warn("the address record cannot be written to the shared directory", "err", err)
				break
			}
			if last != nil {
				ab.tellAddrs(ctx)
			}
			if written.IsZero() {
				close(ab.recorded)
			}
			last, written = b, time.Now()
		}
		ab.readMissing()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// isForgotten reports whether somebody has removed this node's record, as dmxfs peers forget
// does: who begins from now on has to know that there is this host.
func (ab *addressBook) isForgotten() bool {
	b, err := ab.register.Record(ab.host.ID().String())
	return err == nil && b == nil && !ab.leaves.Load() // it is asked last
}

// awaitRecord waits until this node has a record, by which others know that it may have a
// mount: see [others].
func (ab *addressBook) awaitRecord(ctx context.Context) {
	select {
	case <-ab.recorded:
	case <-ctx.Done():
	case <-time.After(recordsEvery):
		ab.log.Warn("the address record is not on the shared directory yet: if this host is cut off one day, hosts that begin anew after that do not know of it")
	}
}

// readRecords gives the host the addresses that peers have left on the shared
// directory. The host tries them when it wants such a peer. It is for the
// start: records are kept for a month after their peers have gone.
func (ab *addressBook) readRecords() {
	records, err := ab.register.Records()
	if err != nil {
		ab.log.Debug("the address records on the shared directory cannot be read", "err", err)
		return
	}
	for p, b := range records {
		ab.addRecord(p, b)
	}
}

func (ab *addressBook) addRecord(p string, b []byte) {
	if _, err := ab.host.AddRecord(b); err != nil {
		ab.log.Debug("an address record on the shared directory is of no use", "peer", p, "err", err)
	}
}

// readMissing is readRecords for those who are wanted and not connected.
func (ab *addressBook) readMissing() {
	for _, p := range missing(ab.transport.Peers()) {
		switch b, err := ab.register.Record(p); {
		case err != nil:
			ab.log.Debug("an address record on the shared directory cannot be read", "peer", p, "err", err)
		case b != nil:
			ab.addRecord(p, b)
		}
	}
}

// tellAddrs tells the membership where this node can be reached now.
func (ab *addressBook) tellAddrs(ctx context.Context) {
	addrs, err := ab.host.OwnAddrs()
	if err != nil {
		ab.log.Warn("own addresses", "err", err)
		return
	}
	var list []string
	for _, a := range addrs[:min(len(addrs), member.MaxAddrs)] {
		list = append(list, a.String())
	}
	if n := ab.node.Load(); n != nil {
		_ = n.SetAddrs(ctx, list) // it fails only when there is no membership any more
	}
}

// tried says what came of reaching a newcomer that asks on the storage.
func (ab *addressBook) tried(to string) []member.Tried {
	var out []member.Tried
	for _, p := range ab.transport.Peers() {
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
