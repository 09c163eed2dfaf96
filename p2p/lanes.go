package p2p

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// lanesID is yamux with lanes, as peers agree on it: with one that knows no lanes, on yamux.
const lanesID protocol.ID = "/dmxfs/lanes/1"

// lanes is the connection below a multiplexer, to which its bytes go in records. Other
// records are of lanes: each carries frames of one session of the lock channel, or a part
// of one. In a stream every frame passes a goroutine of the multiplexer on either side,
// which has to be woken up. In a lane it goes to the socket from the goroutine that has
// it, and to the lock engine from the one that reads the socket.
//
// What takes a lane's records takes moments and waits for nothing, since all that comes
// over the connection waits meanwhile. How much may be on its way by a lane is the
// session's business, see laneWindow.
//
// A record is its length in four bytes, with the highest bit set if it is a lane's, and
// then as much: of the multiplexer's bytes; or the number of the lane, in four bytes, and
// what goes by it. The receiver of a lane chooses its number.
type lanes struct {
	net.Conn
	stall   time.Duration // what a write may take
	refused func(error)   // told why the peer's records cannot be read

	writing  chan struct{} // has one element while nobody writes
	deadline time.Time     // of writes; of who writes
	ending   atomic.Bool   // the deadline is that of the last write

	mu   sync.Mutex
	last uint32
	open map[uint32]*lane

	// Of the goroutine that reads.
	br   *bufio.Reader
	left int // of the multiplexer's record
}

// lane is the receiver's end.
type lane struct {
	mu     sync.Mutex
	take   func(b []byte)
	closed bool
}

const (
	recordHead = 4
	laneIDLen  = 4
	laneRecord = 1 << 31 // in the head
	// longestRecord is the limit of what follows the head of a record, which together
	// are one message of Noise. Others have their turn between two records: a frame of
	// a MiB takes long where the network is slow.
	longestRecord = 1<<16 - 1 - 16 - recordHead
)

var errRecord = fmt.Errorf("%w: no such record", ErrProtocol)

func newLanes(c net.Conn, stall time.Duration) *lanes {
	l := &lanes{Conn: c, stall: stall, writing: make(chan struct{}, 1), open: map[uint32]*lane{}, br: bufio.NewReader(c)}
	l.writing <- struct{}{}
	return l
}

// Read reads what is the multiplexer's, and has lanes take what is theirs.
func (l *lanes) Read(b []byte) (int, error) {
	for l.left == 0 {
		var head [recordHead]byte
		if _, err := io.ReadFull(l.br, head[:]); err != nil {
			return 0, err
		}
		h := binary.BigEndian.Uint32(head[:])
		n, ofLane := int(h&^laneRecord), h&laneRecord != 0
		switch {
		case n > longestRecord || ofLane && n < laneIDLen:
			err := fmt.Errorf("%w: it begins with %x", errRecord, head)
			if l.refused != nil {
				l.refused(err)
			}
			return 0, err
		case !ofLane:
			l.left = n
		default:
			if err := l.receive(n); err != nil {
				return 0, err
			}
		}
	}
	n, err := l.br.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}

// receive takes a record of n bytes to its lane. One that was shut meanwhile needs it no
// more.
func (l *lanes) receive(n int) error {
	b, err := l.br.Peek(min(n, l.br.Size()))
	if n > len(b) && err == nil {
		b = make([]byte, n)
		_, err = io.ReadFull(l.br, b)
	} else if err == nil {
		defer l.br.Discard(n) // what was peeked is there
	}
	if err != nil {
		return unexpected(err)
	}
	l.mu.Lock()
	ln := l.open[binary.BigEndian.Uint32(b)]
	l.mu.Unlock()
	if ln != nil {
		defer endOnPanic()
		ln.mu.Lock()
		defer ln.mu.Unlock()
		if !ln.closed {
			ln.take(b[laneIDLen:])
		}
	}
	return nil
}

// endOnPanic has a panic end the process. yamux, which reads, would go on without the
// connection, and nobody would know in what state the lock engine is.
func endOnPanic() {
	if r := recover(); r != nil {
		why := fmt.Sprintf("%v\n\n%s", r, debug.Stack())
		go panic(why)
		select {}
	}
}

// receiver opens a lane, whose records take gets, one after the other, until shut: from
// the goroutine that reads the connection. What it gets is gone when it returns.
func (l *lanes) receiver(take func(b []byte)) (id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	l.open[l.last] = &lane{take: take}
	return l.last
}

// shut closes a lane; it waits for the call of take that is under way.
func (l *lanes) shut(id uint32) {
	l.mu.Lock()
	ln := l.open[id]
	delete(l.open, id)
	l.mu.Unlock()
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.closed = true
}

// Write writes what is the multiplexer's.
func (l *lanes) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		some := b[:min(len(b), longestRecord)]
		<-l.writing
		err := l.record(uint32(len(some)), nil, some)
		l.writing <- struct{}{}
		if err != nil {
			return n, err
		}
		n += len(some)
		b = b[len(some):]
	}
	return n, nil
}

// send writes b, no longer than a record of a lane, to a lane of the peer's, or nothing if
// ctx is done before. A write that has begun ends by its own time: who ends it leaves a part
// of a record.
func (l *lanes) send(ctx context.Context, id uint32, b []byte) error {
	select {
	case <-l.writing:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := l.record(laneRecord|uint32(laneIDLen+len(b)), binary.BigEndian.AppendUint32(nil, id), b)
	l.writing <- struct{}{}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the peer takes nothing for %v: %w", l.stall, err)
	}
	return err
}

// records are buffers in which records are put together: each write is a message to the
// layers below.
var records = sync.Pool{New: func() any { return new([]byte) }}

// record writes one record. If it fails the connection ends, as a part of it may have been
// written. REQUIRES: what was in writing.
func (l *lanes) record(head uint32, id, rest []byte) error {
	p := records.Get().(*[]byte)
	defer records.Put(p)
	*p = append(append(binary.BigEndian.AppendUint32((*p)[:0], head), id...), rest...)
	err := l.mayTake()
	if err == nil {
		_, err = l.Conn.Write(*p)
	}
	if err != nil {
		_ = l.Conn.Close()
	}
	return err
}

// mayTake sees to it that the next write may take half of stall at least. To set the time
// costs more than to look at the clock.
func (l *lanes) mayTake() error {
	now := time.Now()
	if l.ending.Load() || l.deadline.After(now.Add(l.stall/2)) {
		return nil
	}
	l.deadline = now.Add(l.stall)
	return l.Conn.SetWriteDeadline(l.deadline)
}

// SetWriteDeadline does nothing as a rule: each record has the time that it may take, from
// when it is written. yamux would have its own begin before others have written. It has less
// time for the last word before it closes the connection.
func (l *lanes) SetWriteDeadline(t time.Time) error {
	if t.IsZero() || time.Until(t) > l.stall/2 {
		return nil
	}
	l.ending.Store(true)
	return l.Conn.SetWriteDeadline(t)
}

// lanesMuxer puts lanes below the connections of a multiplexer.
type lanesMuxer struct {
	network.Multiplexer
	stall time.Duration
	log   *limitedLog
}

func (m lanesMuxer) NewConn(c net.Conn, isServer bool, scope network.PeerScope) (network.MuxedConn, error) {
	l := newLanes(c, m.stall)
	l.refused = func(err error) {
		m.log.warnOnce("records:"+string(scope.Peer()), "ended a connection of a peer", "peer", scope.Peer(), "addr", c.RemoteAddr(), "err", err)
	}
	mc, err := m.Multiplexer.NewConn(l, isServer, scope)
	if err != nil {
		return nil, err
	}
	return &lanesConn{mc, l}, nil
}

type lanesConn struct {
	network.MuxedConn
	lanes *lanes
}

// As also finds the lanes.
func (c *lanesConn) As(target any) bool {
	if l, ok := target.(**lanes); ok {
		*l = c.lanes
		return true
	}
	return c.MuxedConn.As(target)
}

// lanesOf are the lanes of the connection of s; nil if it has none.
func lanesOf(s Stream) (l *lanes) {
	if h, ok := s.(hostStream); ok {
		h.Conn().As(&l)
	}
	return l
}
