package p2p

import (
	"context"
	"errors"

	"github.com/libp2p/go-libp2p/core/peer"
)

// slotKey says which streams replace one another: a peer has one stream of each
// kind at a time. Where incarnations count there is one for each pair of them:
// a view can have two of a peer, and who sends to the dead one must not end the
// session to the other.
type slotKey struct {
	peer     peer.ID
	from, to uint64 // incarnations of the peer and of this node, or 0
	kind     kind
}

// slot is the place of the stream that is served now.
type slot struct {
	t      *Transport
	key    slotKey
	stream Stream
	ctx    context.Context // ends when the stream is to be given up
	cancel context.CancelCauseFunc
	unhook func() bool   // keeps the end of ctx from resetting the stream
	done   chan struct{} // closed when it is not served any more
}

var errReplaced = errors.New("replaced by a newer stream of the peer")

// claim makes s the stream of key. The one before is ended, and claim returns
// when nobody serves it any more: so of two streams of a session only one ever
// delivers. A peer opens a stream only when the one before has failed at its
// end, so the newer one is always the right one.
func (t *Transport) claim(key slotKey, s Stream) *slot {
	sl := &slot{t: t, key: key, stream: s, done: make(chan struct{})}
	sl.ctx, sl.cancel = context.WithCancelCause(t.base)
	sl.unhook = context.AfterFunc(sl.ctx, func() { _ = s.Reset() })
	t.mu.Lock()
	prev := t.slots[key]
	t.slots[key] = sl
	t.mu.Unlock()
	if prev != nil {
		prev.cancel(errReplaced)
		<-prev.done
	}
	return sl
}

// release ends the claim.
func (sl *slot) release() {
	sl.unhook()
	sl.cancel(nil)
	close(sl.done)
	sl.t.mu.Lock()
	defer sl.t.mu.Unlock()
	if sl.t.slots[sl.key] == sl {
		delete(sl.t.slots, sl.key)
	}
}
