package p2p

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// Network is what the channels of [Transport] need from below: authenticated
// connections to peers, and ordered streams of bytes on them. [Host] is the
// real one; package p2ptest has one in memory.
//
// All methods are safe for concurrent use.
type Network interface {
	// ID is the peer ID of this node.
	ID() peer.ID
	// Run listens and serves until ctx is done, and returns when every
	// goroutine that it started has ended, those that run a method of ev
	// included. It is called once.
	Run(ctx context.Context, ev Events) error
	// SetAddrs puts the addresses that the caller knows of p in the place of
	// those of an earlier call. What the network has heard of p by other ways
	// stays.
	SetAddrs(p peer.AddrInfo)
	// Connect returns when there is a connection to p, or with the reason why
	// none could be made now.
	Connect(ctx context.Context, p peer.ID) error
	// Open opens a stream on the newest connection to p. It never dials: with
	// no connection it returns [ErrNotConnected].
	Open(ctx context.Context, p peer.ID, proto protocol.ID) (Stream, error)
	// Conns are the connections to p.
	Conns(p peer.ID) []Conn
	// Addrs are the addresses under which p is dialed, for people to read.
	Addrs(p peer.ID) []string
}

// Events is what a [Network] reports. Opened and Closed are called one at a
// time and return at once; Accept is called in a goroutine of its own.
type Events interface {
	// Opened: there is a new connection to p, maybe not the only one.
	Opened(p peer.ID)
	// Closed: the last connection to p is gone.
	Closed(p peer.ID)
	// Accept serves a stream that p opened. The stream ends when Accept
	// returns.
	Accept(p peer.ID, proto protocol.ID, s Stream)
}

// Stream is one stream of a connection, in both directions.
// Reset may be called at any time and ends all calls that are under way.
type Stream interface {
	io.ReadWriter
	// CloseWrite ends this direction: the peer reads what was written, then io.EOF.
	CloseWrite() error
	// Close gives the stream up; what was written before still arrives.
	Close() error
	// Reset gives the stream up in both directions at once.
	Reset() error
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	// Remote is the address of the peer, for people to read.
	Remote() string
}

// Conn describes a connection.
type Conn struct {
	Remote  string // address of the peer
	Inbound bool   // the peer dialed
	Opened  time.Time
}

var (
	// ErrNotConnected: there is no connection to the peer now.
	ErrNotConnected = errors.New("not connected")
	// ErrNoAddress: no address of the peer is known.
	ErrNoAddress = errors.New("no address known")
	// ErrRefused: the peer, or this node, does not admit the other.
	ErrRefused = errors.New("refused")
	// ErrProtocol: the peer does not speak this version of the protocol, or no
	// dmxfs at all.
	ErrProtocol = errors.New("another protocol")
	// ErrClosed: the transport has ended, or is not running yet.
	ErrClosed = errors.New("p2p: transport closed")
)
