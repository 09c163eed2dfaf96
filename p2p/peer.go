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

	// Guarded by Transport.mu.
	wanted    bool
	inView    bool
	connected bool
	since     time.Time     // of connected
	changed   chan struct{} // closed, and made anew, when one of the above changes
	addrs     []string      // what SetWanted said last

	statMu  sync.Mutex
	rtt     time.Duration
	heard   time.Time // last message of the member channel
	echo    uint64    // its Sent
	echoAt  time.Time
	dialErr error
	dialed  time.Time
}

// remote is the remote of p, made if there is none; nil when the transport is
// closed, or p is this node itself.
// REQUIRES: mu held.
func (t *Transport) remote(p peer.ID) *remote {
	r := t.remotes[p]
	if r != nil || t.state == closed || p == t.net.ID() {
		return r
	}
	r = &remote{id: p, kick: make(chan struct{}, 1), asks: make(chan struct{}, askEach), changed: make(chan struct{})}
	r.mail.wake = make(chan struct{}, 1)
	r.ctx, r.stop = context.WithCancelCause(t.base)
	t.remotes[p] = r
	t.spawn(func() { t.dial(r) })
	t.spawn(func() { t.writeMember(r) })
	return r
}

// forget drops r when nothing needs it any more.
// REQUIRES: mu held.
func (t *Transport) forget(r *remote) {
	if !r.wanted && !r.inView && !r.connected {
		r.stop(ErrNotConnected)
		delete(t.remotes, r.id)
	}
}

// signal wakes who waits for a change of r. REQUIRES: Transport.mu held.
func (r *remote) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// await returns when cond, which is called with mu held, is true of r.
func (t *Transport) await(ctx context.Context, r *remote, cond func() bool) error {
	for {
		t.mu.Lock()
		ok, changed := cond(), r.changed
		t.mu.Unlock()
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

func (t *Transport) awaitConnected(ctx context.Context, r *remote) error {
	return t.await(ctx, r, func() bool { return r.connected })
}

// SetWanted says with which peers this node wants to be connected, and at which
// addresses they may be; it replaces what an earlier call said. A wanted peer
// is dialed, again and again with growing pauses, while there is no connection
// to it. Connections to other peers are left to themselves.
func (t *Transport) SetWanted(peers []peer.AddrInfo) {
	wanted := make(map[peer.ID]peer.AddrInfo, len(peers))
	for _, p := range peers {
		if p.ID == t.net.ID() || p.ID == "" {
			continue
		}
		if old, ok := wanted[p.ID]; ok { // a former self beside the new one
			p.Addrs = append(slices.Clone(old.Addrs), p.Addrs...)
		}
		wanted[p.ID] = p
	}
	for _, p := range wanted {
		t.net.SetAddrs(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range wanted {
		r := t.remote(id)
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
	for id, r := range t.remotes {
		if _, ok := wanted[id]; !ok && r.wanted {
			r.wanted = false
			r.signal()
			t.forget(r)
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

// Peers lists the peers that are wanted, connected, or in the view, by ID.
func (t *Transport) Peers() []PeerInfo {
	t.mu.Lock()
	infos := make([]PeerInfo, 0, len(t.remotes))
	for _, r := range t.remotes {
		i := PeerInfo{ID: r.id, Wanted: r.wanted, Connected: r.connected, Since: r.since}
		r.statMu.Lock()
		i.RTT, i.Heard, i.Dialed, i.DialErr = r.rtt, r.heard, r.dialed, r.dialErr
		r.statMu.Unlock()
		infos = append(infos, i)
	}
	t.mu.Unlock()
	v := t.view.Load()
	for n := range infos {
		i := &infos[n]
		i.Conns, i.Addrs = t.net.Conns(i.ID), t.net.Addrs(i.ID)
		i.Sessions = v.sessions(i.ID)
	}
	slices.SortFunc(infos, func(a, b PeerInfo) int { return cmp.Compare(a.ID, b.ID) })
	return infos
}
