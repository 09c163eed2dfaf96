package p2p

import (
	"context"
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// streams opens streams to peers, and refuses theirs.
type streams struct {
	net     Network
	log     *limitedLog
	remotes *remotes
}

// open opens a stream and logs, once in a while, what needs a person.
func (st *streams) open(ctx context.Context, r *remote, proto protocol.ID) (Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s, err := st.net.Open(ctx, r.id, proto)
	switch {
	case err == nil:
		r.answered.Store(true)
	case errors.Is(err, ErrProtocol):
		st.log.warnOnce("protocol:"+string(r.id), "a peer runs another version of dmxfs: update the older of the two",
			"peer", r.id, "protocol", proto, "err", err)
	}
	return s, err
}

// openConnected is open, and waits for a connection.
func (st *streams) openConnected(ctx context.Context, r *remote, proto protocol.ID) (Stream, error) {
	for {
		if err := st.remotes.awaitConnected(ctx, r); err != nil {
			return nil, err
		}
		s, err := st.open(ctx, r, proto)
		if !errors.Is(err, ErrNotConnected) {
			return s, err
		}
		// The connection has ended, and that is about to be known.
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(retryPause):
		}
	}
}

// refused logs that a stream of a peer was refused for what was on it.
func (st *streams) refused(p peer.ID, s Stream, proto protocol.ID, err error) {
	st.log.warnOnce("refused:"+string(p)+string(proto), "refused a stream of a peer",
		"peer", p, "addr", s.Remote(), "protocol", proto, "err", err)
}

// refuse tells the peer why its stream is refused, and logs it where that
// should not happen.
func (st *streams) refuse(p peer.ID, s Stream, v *view, k kind, proto protocol.ID, no verdict) error {
	_ = s.SetDeadline(time.Now().Add(openTimeout))
	if no.Status == statusNotMember && v.member {
		st.refused(p, s, proto, errors.New(no.Reason))
	}
	return answer(s, k, no)
}

// greet writes the greeting and what follows it, and reads the greeting of the
// peer.
func greet(s Stream, k kind, rest func([]byte) []byte) error {
	b := rest(appendPreamble(nil, k))
	if _, err := s.Write(b); err != nil {
		return err
	}
	return readPreamble(s, k)
}

// answer writes the greeting of the side that was called, and a verdict.
func answer(s Stream, k kind, v verdict) error {
	_, err := s.Write(v.append(appendPreamble(nil, k)))
	return err
}
