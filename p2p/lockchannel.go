package p2p

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/locks"
)

// writeLimit is how much one write to a stream carries, unless a single frame
// is longer: what one message of the multiplexer holds.
const writeLimit = 60 << 10

// keepBuf is how much memory a writer keeps for its next write while idle.
const keepBuf = 4 << 10

// retryPause is the pause before the first new try of a session whose stream
// has ended: the end of its connection is about to be known.
const retryPause = 5 * time.Millisecond

// outSession is this node's end of its session to a member.
type outSession struct {
	to   locks.NodeID
	peer peer.ID
	inc  uint64        // of to
	wake chan struct{} // something to write

	mu      sync.Mutex
	q       sendQueue
	waiting bool // the writer waits for wake
	up      bool // there is a stream, and the receiver has welcomed it
	err     error
}

func newOutSession(to locks.NodeID, p peer.ID, inc uint64) *outSession {
	return &outSession{to: to, peer: p, inc: inc, wake: make(chan struct{}, 1), q: newSendQueue()}
}

func (s *outSession) push(frame []byte) {
	s.mu.Lock()
	s.q.push(frame)
	wake := s.waiting
	s.waiting = false
	s.mu.Unlock()
	if wake {
		notify(s.wake)
	}
}

// resume begins a new stream, whose receiver has everything up to last.
func (s *outSession) resume(last uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.q.resume(last)
	if err == nil {
		s.up, s.err = true, nil
	}
	return err
}

// lockChannel is the lock channel to and from the members of the view.
type lockChannel struct {
	log     *limitedLog
	remotes *remotes
	streams *streams
	slots   *slots
	epochs  *epochs
	handle  func(from locks.NodeID, e locks.Epoch, frame []byte)
	// handleNow may be nil, see Handlers.LockNow.
	handleNow func(from locks.NodeID, e locks.Epoch, frame []byte) bool
}

// send is [Transport.Send].
func (c *lockChannel) send(e locks.Epoch, to locks.NodeID, frame []byte) error {
	v := c.epochs.view.Load()
	if v.epoch != e {
		return fmt.Errorf("p2p: send to %s: %w: %d, the present one is %d", to, ErrEpoch, e, v.epoch)
	}
	s := v.out[to]
	if s == nil {
		return fmt.Errorf("p2p: send in epoch %d: %w: %s", e, ErrNotMember, to)
	}
	if len(frame) > MaxFrame {
		return fmt.Errorf("p2p: send to %s: %w: a frame of %d bytes, the limit is %d", to, ErrTooLong, len(frame), MaxFrame)
	}
	s.push(frame)
	return nil
}

// run carries the session s of view v, over one stream after the other,
// until the epoch ends.
func (c *lockChannel) run(v *view, s *outSession, r *remote) {
	for failed := 0; ; {
		if c.remotes.awaitConnected(v.ctx, r) != nil {
			return
		}
		welcomed, err := c.carry(v, s, r)
		if v.ctx.Err() != nil {
			return
		}
		s.setDown(err)
		c.failed(v, s, err)
		if welcomed {
			failed = 0
		}
		d := retryPause
		if failed > 0 {
			d = min(pause(failed-1), fastPause)
		}
		select {
		case <-v.ctx.Done():
			return
		case <-time.After(d):
		}
		failed++
	}
}

func (s *outSession) setDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up, s.err = false, err
}

func (c *lockChannel) failed(v *view, s *outSession, err error) {
	var ref *refusal
	switch {
	case errors.As(err, &ref) && ref.Status == statusOldEpoch:
		// This node will learn of the newer view.
	case errors.As(err, &ref), errors.Is(err, errSession):
		c.log.warnOnce("session:"+string(s.to), "a member does not take messages for locks",
			"node", s.to, "epoch", v.epoch, "err", err)
		return
	}
	c.log.Debug("lock stream ended", "node", s.to, "epoch", v.epoch, "err", err)
}

// carry opens a stream and writes the session's frames to it until it fails.
// It reports whether the receiver had welcomed it.
func (c *lockChannel) carry(v *view, s *outSession, r *remote) (welcomed bool, err error) {
	st, err := c.streams.open(v.ctx, r, lockProtocol)
	if err != nil {
		return false, err
	}
	defer st.Reset()
	stop := context.AfterFunc(v.ctx, func() { _ = st.Reset() })
	defer stop()

	h := hello{Epoch: uint64(v.epoch), From: v.inc, To: s.inc}
	// No deadline: the receiver answers when it has reached the epoch. The
	// stream ends with the epoch, or with the connection.
	if err := greet(st, kindLock, h.append); err != nil {
		return false, err
	}
	verdict, err := readVerdict(st)
	if err != nil {
		return false, err
	}
	if err := verdict.err(); err != nil {
		return false, err
	}
	ctx, end := context.WithCancelCause(v.ctx)
	defer end(nil)
	var w io.Writer = st
	var lane *laneWriter
	if l := lanesOf(st); l != nil {
		if lane, err = readLane(ctx, l, st); err != nil {
			return false, err
		}
		w = lane
	}
	if err := s.resume(verdict.Value); err != nil {
		return false, fmt.Errorf("%w: %w", errSession, err)
	}

	// The acknowledgements come on the other direction of the stream.
	acks := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.readAcks(st, lane)
		acks <- err
		_ = st.Reset() // ends a write that is under way,
		end(err)       // or one to a lane that has not begun
	})
	defer wg.Wait()
	defer st.Reset() // ends readAcks
	return true, s.write(ctx, w, acks)
}

// write writes what is queued, as soon as it is, all that is ready at once.
func (s *outSession) write(ctx context.Context, w io.Writer, acks <-chan error) error {
	var buf []byte
	for {
		s.mu.Lock()
		buf = s.q.take(buf[:0], writeLimit)
		s.waiting = len(buf) == 0
		s.mu.Unlock()
		if len(buf) > 0 {
			if _, err := w.Write(buf); err != nil {
				select {
				case aerr := <-acks: // says more
					return aerr
				default:
					return err
				}
			}
			continue
		}
		if cap(buf) > keepBuf {
			buf = nil // after a burst
		}
		select {
		case <-s.wake:
		case err := <-acks:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// readAcks reads acknowledgements; those of frames that go by a lane also say how much of
// it was taken.
func (s *outSession) readAcks(st Stream, lane *laneWriter) error {
	br := bufio.NewReaderSize(st, 64)
	ack := make([]byte, 8, 16)
	if lane != nil {
		ack = ack[:16]
	}
	for {
		if _, err := io.ReadFull(br, ack); err != nil {
			return err
		}
		s.mu.Lock()
		err := s.q.ack(binary.BigEndian.Uint64(ack))
		s.mu.Unlock()
		if lane != nil && err == nil {
			err = lane.setTaken(binary.BigEndian.Uint64(ack[8:]))
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errSession, err)
		}
	}
}

// SessionInfo is the state of the lock channel to one member.
type SessionInfo struct {
	To    locks.NodeID
	Epoch locks.Epoch
	// Up: the member takes frames.
	Up bool
	// Err is why the last stream ended, if Up is false.
	Err error
	// Waiting is the number of frames that were not written yet, Unacked that
	// of all that are kept; some dozens of them are usual when all is well.
	Waiting, Unacked int
	// Bytes is what the kept frames hold.
	Bytes int
}

func (s *outSession) info(e locks.Epoch) SessionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SessionInfo{
		To: s.to, Epoch: e, Up: s.up, Err: s.err,
		Waiting: s.q.waiting(), Unacked: s.q.unacked(), Bytes: s.q.bytes,
	}
}
