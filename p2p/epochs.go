package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/locks"
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

// epochs is the present view, and who waits for the next.
type epochs struct {
	net     Network
	tasks   *tasks
	remotes *remotes

	view atomic.Pointer[view] // never nil

	mu     sync.Mutex    // orders changes of view, and of which peers are in it
	viewed chan struct{} // closed, and made anew, by begin
}

func newEpochs(net Network, t *tasks, r *remotes) *epochs {
	e := &epochs{net: net, tasks: t, remotes: r, viewed: make(chan struct{})}
	e.view.Store(newView(t.ctx, 0, 0))
	return e
}

// after is the view of [Transport.SetView].
func (es *epochs) after(e locks.Epoch, self locks.NodeID, members []locks.NodeID) (*view, error) {
	p, inc, err := SplitNodeID(self)
	switch {
	case err != nil:
		return nil, err
	case p != es.net.ID():
		return nil, fmt.Errorf("p2p: view %d: %s is not this node, which is %s", e, self, es.net.ID())
	case !slices.Contains(members, self):
		return nil, fmt.Errorf("p2p: view %d: %w: this node, %s", e, ErrNotMember, self)
	}
	v := newView(es.tasks.ctx, e, inc)
	v.member = true
	for _, m := range members {
		p, inc, err := SplitNodeID(m)
		if err != nil {
			v.end(err)
			return nil, fmt.Errorf("p2p: view %d: %w", e, err)
		}
		if m == self {
			continue
		}
		v.out[m] = newOutSession(m, p, inc)
		if p != es.net.ID() {
			v.in[m] = &inSession{from: m}
		}
	}
	return v, nil
}

// none is a view without members, in the place of the present one.
func (es *epochs) none() *view { return newView(es.tasks.ctx, es.view.Load().epoch, 0) }

// begin puts v in the place of the present view, and returns the peers in it: a
// dead incarnation of this node has none.
func (es *epochs) begin(v *view) (map[peer.ID]*remote, error) {
	es.mu.Lock()
	defer es.mu.Unlock()
	old := es.view.Load()
	if v.epoch < old.epoch || v.member && v.epoch == old.epoch {
		v.end(errEpochOver)
		return nil, fmt.Errorf("p2p: view %d: %w: the present one is %d", v.epoch, ErrEpoch, old.epoch)
	}
	es.view.Store(v)
	old.end(errEpochOver)
	close(es.viewed)
	es.viewed = make(chan struct{})
	var peers []peer.ID
	for _, s := range v.out {
		peers = append(peers, s.peer)
	}
	return es.remotes.setInView(peers), nil
}

// present is the present view. The peers in it are known as such.
func (es *epochs) present() *view {
	es.mu.Lock()
	defer es.mu.Unlock()
	return es.view.Load()
}

// epochTimeout is how long a stream waits for its epoch. One that came just when
// its connection ended is not known to have ended, so nothing else would end it;
// a peer that is there opens another one.
const epochTimeout = time.Minute

var errEpochLate = fmt.Errorf("its epoch has not begun here within %v", epochTimeout)

// await returns the view as soon as it is that of epoch e or a later one.
func (es *epochs) await(ctx context.Context, e locks.Epoch) (*view, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, epochTimeout, errEpochLate)
	defer cancel()
	for {
		es.mu.Lock()
		v, viewed := es.view.Load(), es.viewed
		es.mu.Unlock()
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
