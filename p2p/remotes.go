package p2p

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// remote is what the transport keeps of a peer that is wanted, connected, or in
// the view. It has two goroutines of its own, one that dials and one that
// writes the member channel, and two more for each session with it.
type remote struct {
	id   peer.ID
	ctx  context.Context
	stop context.CancelCauseFunc
	mail mailbox
	kick chan struct{} // dial now
	asks chan struct{} // holds one for each question to it that is under way
	// slow is set while the next dial is further away than a peer that there
	// is something to say to should wait.
	slow atomic.Bool
	// answered is set when the peer has taken a stream: it admits this node.
	answered atomic.Bool
	// reopen is set by a new connection: the member channel moves to it.
	reopen atomic.Bool

	// Guarded by remotes.mu.
	wanted    bool
	inView    bool
	connected bool
	since     time.Time     // of connected
	changed   chan struct{} // closed, and made anew, when one of the above changes
	addrs     []string      // what was wanted last

	statMu  sync.Mutex
	rtt     time.Duration
	heard   time.Time // last message of the member channel
	echo    uint64    // its Sent
	echoAt  time.Time
	dialErr error
	dialed  time.Time
}

// remotes are the peers that are wanted, connected, or in the view.
type remotes struct {
	net   Network
	log   *limitedLog
	tasks *tasks
	write func(*remote) // writes the member channel until r.ctx ends

	mu  sync.Mutex
	all map[peer.ID]*remote
}

// get is the remote of p, nil if there is none; connected tells whether there
// is a connection.
func (rs *remotes) get(p peer.ID) (r *remote, connected bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r = rs.all[p]
	return r, r != nil && r.connected
}

// demand is the remote of p, made if there is none; nil when the transport is
// closed, or p is this node itself.
// REQUIRES: mu held.
func (rs *remotes) demand(p peer.ID) *remote {
	r := rs.all[p]
	if r != nil || p == rs.net.ID() || rs.tasks.isClosed() {
		return r
	}
	r = &remote{id: p, kick: make(chan struct{}, 1), asks: make(chan struct{}, askEach), changed: make(chan struct{})}
	r.mail.wake = make(chan struct{}, 1)
	r.ctx, r.stop = context.WithCancelCause(rs.tasks.ctx)
	rs.all[p] = r
	rs.tasks.spawn(func() { rs.dial(r) })
	rs.tasks.spawn(func() { rs.write(r) })
	return r
}

// forget drops r when nothing needs it any more.
// REQUIRES: mu held.
func (rs *remotes) forget(r *remote) {
	if !r.wanted && !r.inView && !r.connected {
		r.stop(ErrNotConnected)
		delete(rs.all, r.id)
	}
}

// setInView says which peers are in the view, and returns them.
func (rs *remotes) setInView(peers []peer.ID) map[peer.ID]*remote {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all {
		r.inView = false
	}
	in := make(map[peer.ID]*remote, len(peers))
	for _, p := range peers {
		if r := rs.demand(p); r != nil {
			r.inView = true
			in[p] = r
		}
	}
	for _, r := range rs.all {
		rs.forget(r)
	}
	return in
}

// opened: there is a new connection to p. It reports whether it is the only one.
func (rs *remotes) opened(p peer.ID) (first bool) {
	rs.mu.Lock()
	r := rs.demand(p)
	first = r != nil && !r.connected
	if first {
		r.setConnected(true)
	}
	rs.mu.Unlock()
	if r != nil {
		r.reopen.Store(true)
	}
	return first
}

// disconnected: the last connection to p is gone. It reports whether there was one.
func (rs *remotes) disconnected(p peer.ID) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.all[p]
	if r == nil || !r.connected {
		return false
	}
	r.setConnected(false)
	rs.forget(r)
	return true
}

// setConnected REQUIRES remotes.mu held.
func (r *remote) setConnected(is bool) {
	r.connected, r.since = is, time.Now()
	r.signal()
}

// signal wakes who waits for a change of r. REQUIRES: remotes.mu held.
func (r *remote) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// await returns when cond, which is called with mu held, is true of r.
func (rs *remotes) await(ctx context.Context, r *remote, cond func() bool) error {
	for {
		rs.mu.Lock()
		ok, changed := cond(), r.changed
		rs.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (rs *remotes) awaitConnected(ctx context.Context, r *remote) error {
	return rs.await(ctx, r, func() bool { return r.connected })
}

// setWanted is [Transport.SetWanted].
func (rs *remotes) setWanted(peers []peer.AddrInfo) {
	wanted := make(map[peer.ID]peer.AddrInfo, len(peers))
	for _, p := range peers {
		if p.ID == rs.net.ID() || p.ID == "" {
			continue
		}
		if old, ok := wanted[p.ID]; ok { // a former self beside the new one
			p.Addrs = append(slices.Clone(old.Addrs), p.Addrs...)
		}
		wanted[p.ID] = p
	}
	for _, p := range wanted {
		rs.net.SetAddrs(p)
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for id, p := range wanted {
		r := rs.demand(id)
		if r == nil {
			return
		}
		addrs := make([]string, len(p.Addrs))
		for i, a := range p.Addrs {
			addrs[i] = a.String()
		}
		if !slices.Equal(addrs, r.addrs) {
			r.addrs = addrs
			notify(r.kick)
		}
		if !r.wanted {
			r.wanted = true
			r.signal()
		}
	}
	for id, r := range rs.all {
		if _, ok := wanted[id]; !ok && r.wanted {
			r.wanted = false
			r.signal()
			rs.forget(r)
		}
	}
}

// notify sends to a channel that is only a flag.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// PeerInfo is what an admin wants to know of a peer.
type PeerInfo struct {
	ID        peer.ID
	Wanted    bool
	Connected bool
	Since     time.Time // of Connected, or of its end; zero if it never was
	Conns     []Conn
	Addrs     []string // known addresses
	// RTT is the smoothed round trip time of the member channel, 0 if it was
	// never measured.
	RTT time.Duration
	// Heard is when the last message of the member channel came; zero if none.
	Heard time.Time
	// Dialed is when the last dial failed, and DialErr why.
	Dialed  time.Time
	DialErr error
	// Sessions are those of the lock channel to the incarnations of the peer
	// that are in the view.
	Sessions []SessionInfo
}

// infos are of all of them, without their sessions.
func (rs *remotes) infos() []PeerInfo {
	rs.mu.Lock()
	infos := make([]PeerInfo, 0, len(rs.all))
	for _, r := range rs.all {
		i := PeerInfo{ID: r.id, Wanted: r.wanted, Connected: r.connected, Since: r.since}
		r.statMu.Lock()
		i.RTT, i.Heard, i.Dialed, i.DialErr = r.rtt, r.heard, r.dialed, r.dialErr
		r.statMu.Unlock()
		infos = append(infos, i)
	}
	rs.mu.Unlock()
	for n := range infos {
		i := &infos[n]
		i.Conns, i.Addrs = rs.net.Conns(i.ID), rs.net.Addrs(i.ID)
	}
	slices.SortFunc(infos, func(a, b PeerInfo) int { return cmp.Compare(a.ID, b.ID) })
	return infos
}
