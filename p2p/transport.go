package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"golang.org/x/sync/semaphore"

	"dmxfs/locks"
)

// Times of the channels. They bound what a peer that stopped in the middle of
// something can hold up; none of them is part of the membership protocol.
const (
	// openTimeout is how long a new stream may take to say what it is for.
	openTimeout = 5 * time.Second
	// progressTimeout is how long a transfer may go without a chunk.
	progressTimeout = 10 * time.Second
	// askTimeout is the limit of a question whose context has no deadline.
	askTimeout = 30 * time.Second
)

// syncBudget bounds the memory of all the states that are being received.
const syncBudget = 4 * MaxSync

// Handlers are what the transport calls, each in goroutines of the network. A
// handler may block; what that holds up is said at each. After Run's context
// is done they must return, or Run does not. The streams of a channel whose
// handler is nil are refused.
type Handlers struct {
	// Member gets each message of the member channel. Messages of one peer
	// come one at a time, and a handler that blocks holds up only this peer's
	// messages on this channel. The message is the handler's.
	Member func(from peer.ID, msg []byte)
	// Lock gets each frame of the lock channel: those of one sender and epoch
	// one at a time, in the order of Send, each exactly once. A handler that
	// blocks stops the sender after some 256 KiB. A frame of an epoch that
	// SetView has just ended may still be on its way into the handler: compare
	// the epoch. The frame is the handler's.
	Lock func(from locks.NodeID, e locks.Epoch, frame []byte)
	// Sync gets the state that a member sent by SendSync, maybe more than once.
	// It may block; the sender waits for it. Compare the epoch here too. The
	// state is the handler's.
	Sync func(from locks.NodeID, e locks.Epoch, state []byte)
	// Ask answers a question. Several run at the same time. ctx ends when the
	// one who asks has stopped waiting by its deadline.
	Ask func(ctx context.Context, from peer.ID, question []byte) ([]byte, error)
	// Peer is told when the first connection to a peer is made, and when the
	// last one is gone, one change at a time. It may be nil. It must return at
	// once; it may call methods of the transport that never block.
	Peer func(p peer.ID, connected bool)
}

// Transport carries the four channels over a [Network]. All methods are safe
// for concurrent use, and none but Run, SendSync and Ask ever blocks.
type Transport struct {
	net  Network
	h    Handlers
	log  *limitedLog
	made time.Time

	// base ends when Run ends. Everything the transport does hangs on it.
	base   context.Context
	end    context.CancelCauseFunc
	budget *semaphore.Weighted

	// view is what the lock and sync channels work for; never nil.
	view atomic.Pointer[view]

	mu      sync.Mutex
	state   runState
	pending []func()       // goroutines to start when Run begins
	wg      sync.WaitGroup // all goroutines of the transport; Add only under mu while running
	remotes map[peer.ID]*remote
	slots   map[slotKey]*slot
	asking  map[peer.ID]int // questions of each peer that are being answered
	askings int             // sum of asking
	viewed  chan struct{}   // closed, and made anew, by SetView
}

type runState int

const (
	idle runState = iota
	running
	closed
)

// NewTransport makes a transport over n. It does nothing until Run; calls
// before that take effect when Run begins.
func NewTransport(n Network, h Handlers, log *slog.Logger) *Transport {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := &Transport{
		net:     n,
		h:       h,
		log:     newLimitedLog(log),
		made:    time.Now(),
		budget:  semaphore.NewWeighted(syncBudget),
		remotes: make(map[peer.ID]*remote),
		slots:   make(map[slotKey]*slot),
		asking:  make(map[peer.ID]int),
		viewed:  make(chan struct{}),
	}
	t.base, t.end = context.WithCancelCause(context.Background())
	t.view.Store(newView(t.base, 0, 0))
	return t
}

// ID is the peer ID of this node.
func (t *Transport) ID() peer.ID { return t.net.ID() }

// Run works until ctx is done or the network fails, and returns when every
// goroutine has ended. It is called once.
func (t *Transport) Run(ctx context.Context) error {
	t.mu.Lock()
	if t.state != idle {
		t.mu.Unlock()
		return errors.New("p2p: Run called twice")
	}
	t.state = running
	for _, f := range t.pending {
		t.wg.Go(f)
	}
	t.pending = nil
	t.mu.Unlock()

	stop := context.AfterFunc(ctx, func() { t.end(ErrClosed) })
	defer stop()
	err := t.net.Run(ctx, (*events)(t))

	t.mu.Lock()
	t.state = closed
	t.mu.Unlock()
	t.end(ErrClosed)
	t.wg.Wait()
	return err
}

// spawn starts a goroutine that Run waits for. f returns soon after base ends.
// REQUIRES: mu held.
func (t *Transport) spawn(f func()) {
	switch t.state {
	case idle:
		t.pending = append(t.pending, f)
	case running:
		t.wg.Go(f)
	case closed:
	}
}

// open opens a stream and logs, once in a while, what needs a person.
func (t *Transport) open(ctx context.Context, r *remote, proto protocol.ID) (Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s, err := t.net.Open(ctx, r.id, proto)
	switch {
	case err == nil:
		r.answered.Store(true)
	case errors.Is(err, ErrProtocol):
		t.log.warnOnce("protocol:"+string(r.id), "a peer runs another version of dmxfs: update the older of the two",
			"peer", r.id, "protocol", proto, "err", err)
	}
	return s, err
}

// refused logs that a stream of a peer was refused for what was on it.
func (t *Transport) refused(p peer.ID, s Stream, proto protocol.ID, err error) {
	t.log.warnOnce("refused:"+string(p)+string(proto), "refused a stream of a peer",
		"peer", p, "addr", s.Remote(), "protocol", proto, "err", err)
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

// events is the transport as its network sees it.
type events Transport

func (ev *events) Accept(p peer.ID, proto protocol.ID, s Stream) {
	t := (*Transport)(ev)
	_ = s.SetDeadline(time.Now().Add(openTimeout))
	var err error
	switch {
	case proto == memberProtocol && t.h.Member != nil:
		err = t.serveMember(p, s)
	case proto == lockProtocol && t.h.Lock != nil:
		err = t.serveLock(p, s)
	case proto == syncProtocol && t.h.Sync != nil:
		err = t.serveSync(p, s)
	case proto == askProtocol && t.h.Ask != nil:
		err = t.serveAsk(p, s)
	default:
		err = fmt.Errorf("%w: nothing here serves %q", ErrProtocol, proto)
	}
	switch {
	case err == nil:
		_ = s.Close()
		return
	case errors.Is(err, ErrProtocol) || errors.Is(err, errSession):
		t.refused(p, s, proto, err)
	case errors.Is(err, io.EOF):
	default:
		t.log.Debug("stream ended", "peer", p, "addr", s.Remote(), "protocol", proto, "err", err)
	}
	_ = s.Reset()
}

func (ev *events) Opened(p peer.ID) {
	t := (*Transport)(ev)
	t.mu.Lock()
	r := t.remote(p)
	first := r != nil && !r.connected
	if first {
		r.connected = true
		r.since = time.Now()
		r.signal()
	}
	t.mu.Unlock()
	if r != nil {
		r.reopen.Store(true)
	}
	if first && t.h.Peer != nil {
		t.h.Peer(p, true)
	}
}

func (ev *events) Closed(p peer.ID) {
	t := (*Transport)(ev)
	t.mu.Lock()
	for k, s := range t.slots {
		if k.peer == p {
			s.cancel(ErrNotConnected)
		}
	}
	r := t.remotes[p]
	last := r != nil && r.connected
	if last {
		r.connected = false
		r.since = time.Now()
		r.signal()
		t.forget(r)
	}
	t.mu.Unlock()
	if last && t.h.Peer != nil {
		t.h.Peer(p, false)
	}
}
