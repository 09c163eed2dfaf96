package p2ptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/dmxfs/dmxfs/p2p"
)

const dialTimeout = time.Second

// Endpoint is the [p2p.Network] of one peer.
type Endpoint struct {
	n  *Network
	id peer.ID

	ready chan struct{}
	evMu  sync.Mutex // orders Opened and Closed; taken before mu

	mu      sync.Mutex
	ev      p2p.Events // nil before Run
	ctx     context.Context
	conns   map[peer.ID][]*end // the newest last
	revoked []peer.ID
	wg      sync.WaitGroup // Add only under mu, while running
	running bool
}

var _ p2p.Network = (*Endpoint)(nil)

// ID is the peer ID.
func (e *Endpoint) ID() peer.ID { return e.id }

// SetAddrs does nothing: there are no addresses here.
func (e *Endpoint) SetAddrs(peer.AddrInfo) {}

// Addrs is a name for people.
func (e *Endpoint) Addrs(p peer.ID) []string { return []string{"memory " + p.ShortString()} }

// The methods that follow are not of [p2p.Network]. They are those of
// [p2p.Host] that a driver needs beside it.

// Ready is closed when Run has begun.
func (e *Endpoint) Ready() <-chan struct{} { return e.ready }

// Record stands for a signed peer record. It is not signed.
func (e *Endpoint) Record() ([]byte, error) { return []byte(recordPrefix + e.id.String()), nil }

// AddRecord reads what Record makes.
func (e *Endpoint) AddRecord(b []byte) (peer.ID, error) {
	name, ok := strings.CutPrefix(string(b), recordPrefix)
	if !ok {
		return "", p2p.ErrBadRecord
	}
	p, err := peer.Decode(name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", p2p.ErrBadRecord, err)
	}
	return p, nil
}

const recordPrefix = "p2ptest record of "

// Revoke ends the connections to peers, and lets them make no new ones.
func (e *Endpoint) Revoke(peers []peer.ID) {
	e.mu.Lock()
	e.revoked = slices.Clone(peers)
	e.mu.Unlock()
	for _, p := range peers {
		e.n.Break(e.id, p)
	}
}

// Run serves until ctx is done.
func (e *Endpoint) Run(ctx context.Context, ev p2p.Events) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	e.ev, e.ctx, e.running = ev, ctx, true
	e.mu.Unlock()
	e.n.mu.Lock()
	if e.n.endpoints[e.id] != nil {
		e.n.mu.Unlock()
		e.mu.Lock()
		e.running = false
		e.mu.Unlock()
		return fmt.Errorf("p2ptest: %s is running already", e.id)
	}
	e.n.endpoints[e.id] = e
	e.n.mu.Unlock()
	close(e.ready)

	<-ctx.Done()

	e.mu.Lock()
	e.running = false
	var ends []*end
	for _, c := range e.conns {
		ends = append(ends, c...)
	}
	e.mu.Unlock()
	for _, x := range ends {
		x.shut(errBroken)
	}
	e.wg.Wait()
	e.n.mu.Lock()
	delete(e.n.endpoints, e.id)
	e.n.mu.Unlock()
	return nil
}

// start runs f in a goroutine that Run waits for.
func (e *Endpoint) start(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.running {
		return false
	}
	e.wg.Go(f)
	return true
}

// Connect dials p.
func (e *Endpoint) Connect(ctx context.Context, p peer.ID) error {
	if e.newest(p) != nil {
		return nil
	}
	if p == e.id {
		return errors.New("p2ptest: dial to self")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errors.New("p2ptest: dial: timed out"))
	defer cancel()
	if err := e.n.travel(ctx, e.id, p); err != nil {
		return err
	}
	e.n.mu.Lock()
	other := e.n.endpoints[p]
	e.n.mu.Unlock()
	if err := e.n.travel(ctx, p, e.id); err != nil {
		return err
	}
	if other == nil {
		return errors.New("p2ptest: dial: connection refused")
	}
	switch {
	case e.rejects(p):
		return fmt.Errorf("p2ptest: dial: %w: %s is revoked", p2p.ErrRefused, p)
	case other.rejects(e.id) || !connect(e, other):
		return errors.New("p2ptest: dial: connection refused")
	}
	return nil
}

func (e *Endpoint) rejects(p peer.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.revoked, p)
}

// travel waits as long as something takes from one peer to another.
func (n *Network) travel(ctx context.Context, from, to peer.ID) error {
	// Not due at once: who receives from a timer that is due serves it, and
	// the race detector of Go 1.26 breaks when two of a bubble do so together.
	t := time.NewTimer(max(n.transit(from, to), 1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		ok, changed := n.open(from, to)
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

// add makes x a connection of e.
func (e *Endpoint) add(x *end) bool {
	e.evMu.Lock()
	defer e.evMu.Unlock()
	e.mu.Lock()
	if !e.running || slices.Contains(e.revoked, x.peer) {
		e.mu.Unlock()
		return false
	}
	e.conns[x.peer] = append(e.conns[x.peer], x)
	ev := e.ev
	e.mu.Unlock()
	ev.Opened(x.peer)
	return true
}

// remove is the end of x.
func (e *Endpoint) remove(x *end) {
	e.evMu.Lock()
	defer e.evMu.Unlock()
	e.mu.Lock()
	conns := e.conns[x.peer]
	i := slices.Index(conns, x)
	if i >= 0 {
		conns = slices.Delete(conns, i, i+1)
		e.conns[x.peer] = conns
	}
	if len(conns) == 0 {
		delete(e.conns, x.peer)
	}
	ev := e.ev
	e.mu.Unlock()
	if i >= 0 && len(conns) == 0 {
		ev.Closed(x.peer)
	}
}

func (e *Endpoint) newest(p peer.ID) *end {
	e.mu.Lock()
	defer e.mu.Unlock()
	if conns := e.conns[p]; len(conns) > 0 {
		return conns[len(conns)-1]
	}
	return nil
}

// Open opens a stream on the newest connection, which takes a round trip.
func (e *Endpoint) Open(ctx context.Context, p peer.ID, proto protocol.ID) (p2p.Stream, error) {
	x := e.newest(p)
	if x == nil {
		return nil, p2p.ErrNotConnected
	}
	s, err := x.openStream(proto)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.accepted:
		return s, nil
	case <-s.gone:
		return nil, s.in.err()
	case <-ctx.Done():
		_ = s.Reset()
		return nil, context.Cause(ctx)
	}
}

// Conns are the connections to p, the oldest first.
func (e *Endpoint) Conns(p peer.ID) []p2p.Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	var conns []p2p.Conn
	for _, x := range e.conns[p] {
		conns = append(conns, p2p.Conn{Remote: "memory " + p.ShortString(), Inbound: x.inbound, Opened: x.opened})
	}
	return conns
}
