package p2p

import (
	"errors"
	"fmt"
	"time"
)

// Pauses between dials. A member that comes back must be found again within a
// fraction of a second; one that is gone for long, and that nobody has
// anything to say to, need not.
const (
	firstPause = 50 * time.Millisecond
	fastPause  = 500 * time.Millisecond // limit while there is something to say
	slowPause  = 15 * time.Second
	steady     = time.Second // a connection that lived so long was good, even if unused
)

// pause is the pause after the n-th dial in a row that failed, n from 0.
func pause(n int) time.Duration {
	const fast = 60 // at fastPause; then slower
	switch {
	case n < 4:
		return firstPause << n
	case n < fast:
		return fastPause
	case n < fast+5:
		return fastPause << (n - fast)
	}
	return slowPause
}

var (
	errEndedAtOnce = errors.New("the connection ended at once")
	errTurnedAway  = fmt.Errorf("%w: the peer closes each connection at once: it does not admit this node", ErrRefused)
)

// dial keeps r connected while it is wanted.
func (rs *remotes) dial(r *remote) {
	for failed := 0; ; {
		if rs.await(r.ctx, r, func() bool { return r.wanted && !r.connected }) != nil {
			return
		}
		start := time.Now()
		r.answered.Store(false)
		err := rs.net.Connect(r.ctx, r.id)
		if r.ctx.Err() != nil {
			return
		}
		if err == nil {
			// A peer that does not admit this node can tell so only by closing
			// the connection: one that ends at once, unused, counts as failed.
			if rs.await(r.ctx, r, func() bool { return !r.connected }) != nil {
				return
			}
			switch {
			case time.Since(start) >= steady:
				failed = 0
				r.setDial(nil)
				continue
			case r.answered.Load():
				failed = 0
				err = errEndedAtOnce
			case failed < 2: // by chance
				err = errEndedAtOnce
			default:
				err = errTurnedAway
			}
		}
		r.setDial(err)
		rs.dialFailed(r, err)
		d := pause(failed)
		failed++
		r.slow.Store(d > fastPause)
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(d):
		case <-r.kick:
		}
		r.slow.Store(false)
	}
}

// dialFailed logs what needs a person; that a host is down does not.
func (rs *remotes) dialFailed(r *remote, err error) {
	if errors.Is(err, ErrRefused) || errors.Is(err, errHandshake) {
		rs.log.warnOnce("dial:"+string(r.id), "can't connect to a peer", "peer", r.id, "addrs", rs.net.Addrs(r.id), "err", err)
		return
	}
	rs.log.Debug("can't connect to a peer", "peer", r.id, "err", err)
}

func (r *remote) setDial(err error) {
	r.statMu.Lock()
	defer r.statMu.Unlock()
	r.dialErr, r.dialed = err, time.Now()
}
