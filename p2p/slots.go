package p2p

import (
	"context"
	"errors"
	"sync"

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

// slots are the streams of peers that are served, one for each key.
type slots struct {
	ctx context.Context // when it ends, all do
	mu  sync.Mutex
	all map[slotKey]*slot
}

// slot is the place of the stream that is served now.
type slot struct {
	of     *slots
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
func (ss *slots) claim(key slotKey, s Stream) *slot {
	sl := &slot{of: ss, key: key, stream: s, done: make(chan struct{})}
	sl.ctx, sl.cancel = context.WithCancelCause(ss.ctx)
	sl.unhook = context.AfterFunc(sl.ctx, func() { _ = s.Reset() })
	ss.mu.Lock()
	prev := ss.all[key]
	ss.all[key] = sl
	ss.mu.Unlock()
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
	sl.of.released(sl)
}

func (ss *slots) released(sl *slot) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.all[sl.key] == sl {
		delete(ss.all, sl.key)
	}
}

// disconnected gives up the streams of a peer to which there is no connection.
func (ss *slots) disconnected(p peer.ID) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for k, sl := range ss.all {
		if k.peer == p {
			sl.cancel(ErrNotConnected)
		}
	}
}
