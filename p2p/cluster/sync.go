package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// syncTimeout is how long one attempt to bring a state to a member may take.
// The machine asks for another one for as long as the member has not got it.
const syncTimeout = 2 * time.Minute

// ownReady: the engine has said what it holds at the begin of epoch e.
func (n *Node) ownReady(e locks.Epoch, state []byte) {
	if n.own.epoch != e || state == nil {
		return // the next epoch has begun meanwhile, or a successor says it
	}
	n.own.ready, n.own.bytes = true, state
	n.tell(n.o.Machine.Self().ID(), e, state)
	for _, to := range n.own.wanted {
		n.sendState(to)
	}
	n.own.wanted = nil
}

// tell gives the engine the state of a member.
func (n *Node) tell(from locks.NodeID, e locks.Epoch, state []byte) {
	n.engineDo.put(func() {
		if err := n.engine.Sync(from, e, state); err != nil {
			// Without it nothing may be granted, here; and all would wait for it.
			n.o.Log.Error("the state of a member cannot be used: this node ends, and the others go on without it", "from", from, "epoch", e, "err", err)
			n.Fail(fmt.Errorf("the state of %s at epoch %d cannot be used: %w", from, e, err))
		}
	})
}

// sendState brings the own state to a member, unless that is under way.
func (n *Node) sendState(to member.Node) {
	switch {
	case n.own.sending[to]:
		return
	case !n.own.ready:
		n.own.wanted = append(n.own.wanted, to)
		return
	}
	e, b, sending := n.own.epoch, n.own.bytes, n.own.sending
	sending[to] = true
	n.work.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, syncTimeout)
		defer cancel()
		if err := n.o.Transport.SendSync(ctx, to.ID(), e, b); err != nil {
			n.o.Log.Debug("state not sent, will be tried again", "to", to.String(), "epoch", e, "err", err)
		}
		n.give(item{do: func() { delete(sending, to) }})
	})
}
