package p2p

import (
	"context"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
)

// settleAfter is how long two connections to one peer are left alone: longer
// than it takes to notice that one of them is dead.
const settleAfter = 3 * time.Second

// settler ends connections of which there are too many.
type settler struct {
	sw    *swarm.Swarm
	self  peer.ID
	crowd <-chan peer.ID // peers with more than one connection
	log   *limitedLog
}

// run ends the second connection that two nodes have when both have dialed
// at the same time. The one that the smaller peer ID has dialed stays, and the
// other node ends its own: so they never end both.
func (s *settler) run(ctx context.Context) {
	due := make(map[peer.ID]time.Time)
	timer := time.NewTimer(time.Hour) // set when there is something to settle
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-s.crowd:
			due[p] = time.Now().Add(settleAfter)
		case <-timer.C:
		}
		next := time.Duration(-1)
		for p, at := range due {
			d := time.Until(at)
			if d <= 0 {
				delete(due, p)
				s.settle(p)
			} else if next < 0 || d < next {
				next = d
			}
		}
		if next >= 0 {
			timer.Reset(next)
		}
	}
}

func (s *settler) settle(p peer.ID) {
	var mine []network.Conn
	var theirs []string
	for _, c := range s.sw.ConnsToPeer(p) {
		switch {
		case c.IsClosed():
		case c.Stat().Direction == network.DirOutbound:
			mine = append(mine, c)
		case time.Since(c.Stat().Opened) >= settleAfter:
			theirs = append(theirs, c.RemoteMultiaddr().String())
		}
	}
	if len(theirs) > 1 {
		// A node dials only when it has no connection.
		s.log.warnOnce("clone:"+string(p), "two processes use the identity of one peer: was a state directory copied?", "peer", p, "addrs", theirs)
	}
	if p < s.self && len(theirs) > 0 { // otherwise the peer ends its own
		for _, c := range mine {
			_ = c.Close()
		}
	}
}
