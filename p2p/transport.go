package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"golang.org/x/sync/semaphore"

	"github.com/dmxfs/dmxfs/locks"
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
	// LockNow is Lock where that waits for nothing and takes no longer than one step
	// of the lock engine, since all that comes over the connection waits meanwhile. If
	// it is false it has done nothing, and Lock gets the frame. It does not keep the
	// frame. It may be nil.
	LockNow func(from locks.NodeID, e locks.Epoch, frame []byte) bool
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
// for concurrent use, and none but Run, SendSync and Ask ever blocks. See the
// package comment for its parts.
type Transport struct {
	net Network
	h   Handlers
	log *limitedLog

	tasks   *tasks
	remotes *remotes
	slots   *slots
	streams *streams
	epochs  *epochs
	member  *memberChannel
	lock    *lockChannel
	syncs   *syncChannel
	asks    *askChannel
}

// NewTransport makes a transport over n. It does nothing until Run; calls
// before that take effect when Run begins.
func NewTransport(n Network, h Handlers, log *slog.Logger) *Transport {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := newLimitedLog(log)
	t := &Transport{net: n, h: h, log: l, tasks: newTasks()}
	t.remotes = &remotes{net: n, log: l, tasks: t.tasks, all: make(map[peer.ID]*remote)}
	t.slots = &slots{ctx: t.tasks.ctx, all: make(map[slotKey]*slot)}
	t.streams = &streams{net: n, log: l, remotes: t.remotes}
	t.epochs = newEpochs(n, t.tasks, t.remotes)
	t.member = &memberChannel{log: l, remotes: t.remotes, streams: t.streams, slots: t.slots, handle: h.Member, made: time.Now()}
	t.remotes.write = t.member.write
	t.lock = &lockChannel{log: l, remotes: t.remotes, streams: t.streams, slots: t.slots, epochs: t.epochs, handle: h.Lock, handleNow: h.LockNow}
	t.syncs = &syncChannel{remotes: t.remotes, streams: t.streams, slots: t.slots, epochs: t.epochs, handle: h.Sync,
		budget: semaphore.NewWeighted(syncBudget)}
	t.asks = &askChannel{tasks: t.tasks, remotes: t.remotes, streams: t.streams, handle: h.Ask, of: make(map[peer.ID]int)}
	return t
}

// ID is the peer ID of this node.
func (t *Transport) ID() peer.ID { return t.net.ID() }

// Run works until ctx is done or the network fails, and returns when every
// goroutine has ended. It is called once.
func (t *Transport) Run(ctx context.Context) error {
	if err := t.tasks.begin(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { t.tasks.end(ErrClosed) })
	defer stop()
	err := t.net.Run(ctx, (*events)(t))
	t.tasks.close()
	return err
}

// SetWanted says with which peers this node wants to be connected, and at which
// addresses they may be; it replaces what an earlier call said. A wanted peer
// is dialed, again and again with growing pauses, while there is no connection
// to it. Connections to other peers are left to themselves.
func (t *Transport) SetWanted(peers []peer.AddrInfo) { t.remotes.setWanted(peers) }

// Peers lists the peers that are wanted, connected, or in the view, by ID.
func (t *Transport) Peers() []PeerInfo {
	infos := t.remotes.infos()
	v := t.epochs.view.Load()
	for i := range infos {
		infos[i].Sessions = v.sessions(infos[i].ID)
	}
	return infos
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
	v, err := t.epochs.after(e, self, members)
	if err != nil {
		return err
	}
	return t.setView(v)
}

// DropView ends the present epoch without another one: this node has left, or
// was expelled. Later views are greater still.
func (t *Transport) DropView() {
	_ = t.setView(t.epochs.none()) // fails only if another view has just begun
}

func (t *Transport) setView(v *view) error {
	remotes, err := t.epochs.begin(v)
	if err != nil {
		return err
	}
	for _, s := range v.out {
		if r := remotes[s.peer]; r != nil { // else nobody will ever read
			t.tasks.spawn(func() { t.lock.run(v, s, r) })
		}
	}
	return nil
}

// SendMember sends msg to a peer if that can be done now, and forgets it
// otherwise: it never blocks, and nothing waits for longer than a second. It
// reports false if the message was dropped at once, for want of a connection
// or because it is longer than [MaxMember]; true promises nothing. The message
// must not be changed afterwards.
func (t *Transport) SendMember(to peer.ID, msg []byte) bool { return t.member.send(to, msg) }

// Send sends a frame to another member of the epoch, which must be the present
// one. It never blocks: the frame is queued, and it arrives exactly once, after
// all that was sent to this member before, unless the epoch ends first. The
// frame must not be changed afterwards; the same frame may be sent to several.
//
// What a member does not take is kept until the epoch ends. [Transport.Peers]
// tells how much that is.
func (t *Transport) Send(e locks.Epoch, to locks.NodeID, frame []byte) error {
	return t.lock.send(e, to, frame)
}

// SendSync sends this node's state of epoch e, which must be the present one,
// to another member, and returns when the member's handler has it. It waits
// for a connection, and for the member to reach the epoch; it ends with ctx,
// with the epoch, or when the transfer makes no progress for ten seconds. A
// second call for the same member ends the first one: call it again only when
// it has returned.
func (t *Transport) SendSync(ctx context.Context, to locks.NodeID, e locks.Epoch, state []byte) error {
	if err := t.syncs.send(ctx, to, e, state); err != nil {
		return fmt.Errorf("p2p: state of epoch %d to %s: %w", e, to, err)
	}
	return nil
}

// Ask asks a connected peer a question and waits for the answer, for as long as
// ctx allows, at most ten minutes, or 30 seconds if it has no deadline. Errors
// are [ErrNotConnected], [ErrBusy], an [*AskError], those of ctx, or that the
// connection has failed: the question may then have been answered or not.
func (t *Transport) Ask(ctx context.Context, to peer.ID, question []byte) ([]byte, error) {
	if len(question) > MaxQuestion {
		return nil, fmt.Errorf("p2p: ask %s: %w: a question of %d bytes, the limit is %d", to, ErrTooLong, len(question), MaxQuestion)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	a, err := t.asks.ask(ctx, to, question)
	if err == nil {
		return a, nil
	}
	var failed *AskError
	if errors.As(err, &failed) {
		return nil, err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("p2p: ask %s: %w", to, err)
}

// events is the transport as its network sees it.
type events Transport

func (ev *events) Accept(p peer.ID, proto protocol.ID, s Stream) {
	t := (*Transport)(ev)
	_ = s.SetDeadline(time.Now().Add(openTimeout))
	var err error
	switch {
	case proto == memberProtocol && t.h.Member != nil:
		err = t.member.serve(p, s)
	case proto == lockProtocol && t.h.Lock != nil:
		err = t.lock.serve(p, s)
	case proto == syncProtocol && t.h.Sync != nil:
		err = t.syncs.serve(p, s)
	case proto == askProtocol && t.h.Ask != nil:
		err = t.asks.serve(p, s)
	default:
		err = fmt.Errorf("%w: nothing here serves %q", ErrProtocol, proto)
	}
	switch {
	case err == nil:
		_ = s.Close()
		return
	case errors.Is(err, ErrProtocol) || errors.Is(err, errSession):
		t.streams.refused(p, s, proto, err)
	case errors.Is(err, io.EOF):
	default:
		t.log.Debug("stream ended", "peer", p, "addr", s.Remote(), "protocol", proto, "err", err)
	}
	_ = s.Reset()
}

func (ev *events) Opened(p peer.ID) {
	if ev.remotes.opened(p) && ev.h.Peer != nil {
		ev.h.Peer(p, true)
	}
}

func (ev *events) Closed(p peer.ID) {
	ev.slots.disconnected(p)
	if ev.remotes.disconnected(p) && ev.h.Peer != nil {
		ev.h.Peer(p, false)
	}
}
