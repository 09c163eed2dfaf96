package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"

	"dmxfs/locks"
)

// view is the epoch that the lock and sync channels work for. All that they
// keep belongs to one epoch and goes with it.
type view struct {
	epoch  locks.Epoch
	inc    uint64 // of this node
	member bool   // this node is in it; else nobody is, see DropView
	// ctx ends when the next epoch begins.
	ctx context.Context
	end context.CancelCauseFunc
	out map[locks.NodeID]*outSession // to the other members
	in  map[locks.NodeID]*inSession  // from them
}

var (
	// ErrEpoch: what was asked for belongs to another epoch than the present one.
	ErrEpoch = errors.New("another epoch")
	// ErrNotMember: the node is not another member of the view.
	ErrNotMember = errors.New("not a member of the view")
	// ErrTooLong: a frame, state, question or answer is over its limit.
	ErrTooLong = errors.New("too long")

	errEpochOver = errors.New("the epoch is over")
	// errSession: the two ends of a session contradict each other.
	errSession = errors.New("session can't go on")
)

func newView(base context.Context, e locks.Epoch, inc uint64) *view {
	v := &view{
		epoch: e,
		inc:   inc,
		out:   make(map[locks.NodeID]*outSession),
		in:    make(map[locks.NodeID]*inSession),
	}
	v.ctx, v.end = context.WithCancelCause(base)
	return v
}

// SetView begins epoch e, in which this node is self, on the lock and sync
// channels. What was queued, sent but not acknowledged, or received but not
// delivered in earlier epochs is dropped. Members have the form of [NodeID];
// self is one of them, and there may be others of the same peer: its dead
// incarnations.
//
// Epochs only grow: it is an error when e is not greater than in every call
// before, or when the list is not as it should be. Then nothing has changed.
func (t *Transport) SetView(e locks.Epoch, self locks.NodeID, members []locks.NodeID) error {
	p, inc, err := SplitNodeID(self)
	switch {
	case err != nil:
		return err
	case p != t.net.ID():
		return fmt.Errorf("p2p: view %d: %s is not this node, which is %s", e, self, t.net.ID())
	case !slices.Contains(members, self):
		return fmt.Errorf("p2p: view %d: %w: this node, %s", e, ErrNotMember, self)
	}
	v := newView(t.base, e, inc)
	v.member = true
	for _, m := range members {
		p, inc, err := SplitNodeID(m)
		if err != nil {
			v.end(err)
			return fmt.Errorf("p2p: view %d: %w", e, err)
		}
		if m == self {
			continue
		}
		v.out[m] = newOutSession(m, p, inc)
		if p != t.net.ID() {
			v.in[m] = &inSession{from: m}
		}
	}
	return t.setView(v)
}

// DropView ends the present epoch without another one: this node has left, or
// was expelled. Later views are greater still.
func (t *Transport) DropView() {
	v := newView(t.base, t.view.Load().epoch, 0)
	_ = t.setView(v) // fails only if another view has just begun
}

func (t *Transport) setView(v *view) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.view.Load()
	if v.epoch < old.epoch || v.member && v.epoch == old.epoch {
		v.end(errEpochOver)
		return fmt.Errorf("p2p: view %d: %w: the present one is %d", v.epoch, ErrEpoch, old.epoch)
	}
	t.view.Store(v)
	old.end(errEpochOver)
	close(t.viewed)
	t.viewed = make(chan struct{})

	was := make(map[*remote]bool)
	for _, r := range t.remotes {
		was[r], r.inView = r.inView, false
	}
	for _, s := range v.out {
		r := t.remote(s.peer)
		if r == nil {
			continue // a dead incarnation of this node: nobody will ever read
		}
		r.inView = true
		t.spawn(func() { t.runSession(v, s, r) })
	}
	for r := range was {
		t.forget(r)
	}
	return nil
}

// awaitEpoch returns the view as soon as it is that of epoch e or a later one.
func (t *Transport) awaitEpoch(ctx context.Context, e locks.Epoch) (*view, error) {
	for {
		t.mu.Lock()
		v, viewed := t.view.Load(), t.viewed
		t.mu.Unlock()
		if v.epoch >= e {
			return v, nil
		}
		select {
		case <-viewed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// judge says whether the node that said h may speak to this one in view v,
// which is not older than h.
func (v *view) judge(p peer.ID, h hello) (*inSession, verdict) {
	if v.epoch > locks.Epoch(h.Epoch) {
		return nil, verdict{statusOldEpoch, uint64(v.epoch), fmt.Sprintf("epoch %d is over, this is epoch %d", h.Epoch, v.epoch)}
	}
	if !v.member {
		return nil, verdict{statusNotMember, uint64(v.epoch), "this node is in no view now"}
	}
	from := NodeID(p, h.From)
	in := v.in[from]
	if in == nil {
		return nil, verdict{statusNotMember, uint64(v.epoch), fmt.Sprintf("%s is not a member of epoch %d", from, v.epoch)}
	}
	if h.To != v.inc {
		return nil, verdict{statusNotMember, uint64(v.epoch), fmt.Sprintf("incarnation %016x is not running here, this is %016x", h.To, v.inc)}
	}
	return in, verdict{Status: statusOK}
}

func (v *view) sessions(p peer.ID) []SessionInfo {
	var infos []SessionInfo
	for _, s := range v.out {
		if s.peer == p {
			infos = append(infos, s.info(v.epoch))
		}
	}
	slices.SortFunc(infos, func(a, b SessionInfo) int { return cmp.Compare(a.To, b.To) })
	return infos
}
