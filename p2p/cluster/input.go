package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Message takes a message of the membership protocol from a peer. It returns
// at once; a message that cannot be decoded is an error.
func (n *Node) Message(from string, b []byte) error {
	e, err := member.Decode(from, n.o.Self, n.o.Cluster, b)
	if err != nil {
		return err
	}
	select {
	case n.inputs <- item{in: member.Received{Envelope: e}}:
	default: // it may be lost, and will be said again
	}
	return nil
}

// State takes the state of a member's engine at an epoch. It blocks until the
// machine has it, or ctx or Run ends.
func (n *Node) State(ctx context.Context, from locks.NodeID, e locks.Epoch, state []byte) {
	node, err := member.ParseNode(from)
	if err != nil {
		n.o.Log.Error("state from a node without a name", "from", from, "err", err)
		return
	}
	select {
	case n.inputs <- item{in: member.SyncArrived{From: node, Epoch: e}, state: state}:
	case <-ctx.Done():
	case <-n.done:
	}
}

// errEnded ends the wishes of admins when the node ends.
var errEnded = errors.New("this node is no member any more")

// input gives the machine an input that must not be lost.
func (n *Node) input(ctx context.Context, in member.Input) error {
	select {
	case <-n.done:
		return errEnded // not by chance into a queue that nobody empties
	default:
	}
	select {
	case n.inputs <- item{in: in}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.done:
		return errEnded
	}
}

// Leave asks the machine to leave the view; Run returns when it has. All
// locks of this node must have been released.
func (n *Node) Leave(ctx context.Context) error { return n.input(ctx, member.Leave{}) }

// Dead tells the machine that a node of this host is dead. The caller must hold the
// proof, see member.Dead; how is for people.
func (n *Node) Dead(ctx context.Context, node member.Node, how string) error {
	return n.input(ctx, member.Dead{Node: node, How: how})
}

// SetAddrs tells the machine the addresses of this node, which others learn from
// its record on the storage until it joins anew; see member.SetAddrs.
func (n *Node) SetAddrs(ctx context.Context, addrs []string) error {
	return n.input(ctx, member.SetAddrs{Addrs: addrs})
}

// wish carries out what an admin wants, and waits for its end, for as long as
// patience.
func (n *Node) wish(ctx context.Context, patience time.Duration, make_ func(member.Wish) member.Input) error {
	ch := make(chan error, 1)
	deadline := n.o.Now() + patience.Milliseconds()
	n.mu.Lock()
	n.nextID++
	w := member.Wish{ID: n.nextID, Deadline: deadline}
	n.wishes[w.ID] = ch
	n.mu.Unlock()
	if err := n.input(ctx, make_(w)); err != nil {
		return err
	}
	select {
	case err := <-ch:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.done:
		return errEnded
	}
}

// Remove drops a member that may be alive, and returns when it is out, after at
// most patience; see member.Remove. why is for people.
func (n *Node) Remove(ctx context.Context, patience time.Duration, node member.Node, why string) error {
	return n.wish(ctx, patience, func(w member.Wish) member.Input { return member.Remove{Wish: w, Node: node, Why: why} })
}

// Revoke keeps a peer out for good, or lets it in again.
func (n *Node) Revoke(ctx context.Context, patience time.Duration, peer string, undo bool) error {
	return n.wish(ctx, patience, func(w member.Wish) member.Input { return member.Revoke{Wish: w, Peer: peer, Undo: undo} })
}

// SetPolicy changes the policy of the cluster.
func (n *Node) SetPolicy(ctx context.Context, patience time.Duration, p member.Policy) error {
	return n.wish(ctx, patience, func(w member.Wish) member.Input { return member.SetPolicy{Wish: w, Policy: p} })
}

func (n *Node) answer(a member.Answered) {
	n.mu.Lock()
	ch := n.wishes[a.ID]
	delete(n.wishes, a.ID)
	n.mu.Unlock()
	if ch != nil {
		ch <- a.Err
	}
}

// refuseWishes ends what admins still wait for.
func (n *Node) refuseWishes() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, ch := range n.wishes {
		delete(n.wishes, id)
		ch <- errEnded
	}
}

// Status is the state of the membership after the last step, zero before the first. What is
// in it must not be changed. It is found out when it is asked for: with a hundred members that
// is more work than most steps.
func (n *Node) Status() member.Status {
	n.stepping.Lock()
	defer n.stepping.Unlock()
	if !n.stepped {
		return member.Status{}
	}
	if n.status == nil {
		s := n.o.Machine.Status()
		n.status = &s
	}
	return *n.status
}

// Done is closed when Run has returned.
func (n *Node) Done() <-chan struct{} { return n.done }
