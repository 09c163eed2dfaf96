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
	"github.com/libp2p/go-libp2p/core/protocol"

	"dmxfs/locks"
)

// writeLimit is how much one write to a stream carries, unless a single frame
// is longer: what one message of the multiplexer holds.
const writeLimit = 60 << 10

// outSession is this node's end of its session to a member.
type outSession struct {
	to   locks.NodeID
	peer peer.ID
	wake chan struct{} // something to write

	mu      sync.Mutex
	q       sendQueue
	waiting bool // the writer waits for wake
	up      bool // there is a stream, and the receiver has welcomed it
	err     error
	buf     []byte // of the last write, for the next
}

func newOutSession(to locks.NodeID, p peer.ID) *outSession {
	return &outSession{to: to, peer: p, wake: make(chan struct{}, 1), q: newSendQueue()}
}

// Send sends a frame to another member of the epoch, which must be the present
// one. It never blocks: the frame is queued, and it arrives exactly once, after
// all that was sent to this member before, unless the epoch ends first. The
// frame must not be changed afterwards; the same frame may be sent to several.
//
// What a member does not take is kept until the epoch ends. [Transport.Peers]
// tells how much that is.
func (t *Transport) Send(e locks.Epoch, to locks.NodeID, frame []byte) error {
	v := t.view.Load()
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
	s.mu.Lock()
	s.q.push(frame)
	wake := s.waiting
	s.waiting = false
	s.mu.Unlock()
	if wake {
		notify(s.wake)
	}
	return nil
}

// runSession carries the session s of view v, over one stream after the other,
// until the epoch ends.
func (t *Transport) runSession(v *view, s *outSession, r *remote) {
	for failed := 0; ; {
		if t.awaitConnected(v.ctx, r) != nil {
			return
		}
		welcomed, err := t.carry(v, s, r)
		if v.ctx.Err() != nil {
			return
		}
		s.setDown(err)
		t.sessionFailed(v, s, err)
		if welcomed {
			failed = 0
		}
		select {
		case <-v.ctx.Done():
			return
		case <-time.After(pause(min(failed, 4))):
		}
		failed++
	}
}

func (s *outSession) setDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up, s.err = false, err
}

func (t *Transport) sessionFailed(v *view, s *outSession, err error) {
	var ref *refusal
	switch {
	case errors.As(err, &ref) && ref.Status == statusOldEpoch:
		// This node will learn of the newer view.
	case errors.As(err, &ref), errors.Is(err, errSession):
		t.log.warnOnce("session:"+string(s.to), "a member does not take messages for locks",
			"node", s.to, "epoch", v.epoch, "err", err)
		return
	}
	t.log.Debug("lock stream ended", "node", s.to, "epoch", v.epoch, "err", err)
}

// carry opens a stream and writes the session's frames to it until it fails.
// It reports whether the receiver had welcomed it.
func (t *Transport) carry(v *view, s *outSession, r *remote) (welcomed bool, err error) {
	st, err := t.open(v.ctx, r, lockProtocol)
	if err != nil {
		return false, err
	}
	defer st.Reset()
	stop := context.AfterFunc(v.ctx, func() { _ = st.Reset() })
	defer stop()

	_, to, _ := SplitNodeID(s.to)
	h := hello{Epoch: uint64(v.epoch), From: v.inc, To: to}
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
	s.mu.Lock()
	if err = s.q.resume(verdict.Value); err == nil {
		s.up, s.err = true, nil
	}
	s.mu.Unlock()
	if err != nil {
		return false, fmt.Errorf("%w: %w", errSession, err)
	}

	// The acknowledgements come on the other direction of the stream.
	acks := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		acks <- s.readAcks(st)
		_ = st.Reset() // ends a write that is under way
	})
	defer wg.Wait()
	defer st.Reset() // ends readAcks
	return true, s.write(v.ctx, st, acks)
}

// write writes what is queued, as soon as it is, all that is ready at once.
func (s *outSession) write(ctx context.Context, st Stream, acks <-chan error) error {
	for {
		s.mu.Lock()
		if cap(s.buf) > 4*writeLimit {
			s.buf = nil // after a long frame
		}
		s.buf = s.q.take(s.buf[:0], writeLimit)
		b := s.buf
		s.waiting = len(b) == 0
		s.mu.Unlock()
		if len(b) > 0 {
			if _, err := st.Write(b); err != nil {
				select {
				case aerr := <-acks: // says more
					return aerr
				default:
					return err
				}
			}
			continue
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

func (s *outSession) readAcks(st Stream) error {
	br := bufio.NewReaderSize(st, 64)
	var b [8]byte
	for {
		if _, err := io.ReadFull(br, b[:]); err != nil {
			return err
		}
		s.mu.Lock()
		err := s.q.ack(binary.BigEndian.Uint64(b[:]))
		s.mu.Unlock()
		if err != nil {
			return fmt.Errorf("%w: %w", errSession, err)
		}
	}
}

// inSession is this node's end of the session from a member. It is used by one
// stream at a time, see claim.
type inSession struct {
	from locks.NodeID

	mu    sync.Mutex // for SessionInfo
	count recvCount
}

// serveLock receives the session that p opens on s.
func (t *Transport) serveLock(p peer.ID, s Stream) error {
	br := bufio.NewReaderSize(s, 32<<10)
	if err := readPreamble(br, kindLock); err != nil {
		return err
	}
	h, err := readHello(br)
	if err != nil {
		return err
	}
	sl := t.claim(slotKey{p, h.From, kindLock}, s)
	defer sl.release()
	_ = s.SetDeadline(time.Time{})
	// A session of a newer epoch waits. Nothing of it has been sent yet, so it
	// costs no memory here, and the sender keeps its frames as it does anyway.
	v, err := t.awaitEpoch(sl.ctx, locks.Epoch(h.Epoch))
	if err != nil {
		return err
	}
	in, verdict := v.judge(p, h)
	if verdict.Status != statusOK {
		return t.refuse(p, s, v, kindLock, lockProtocol, verdict)
	}
	stop := context.AfterFunc(v.ctx, func() { _ = s.Reset() })
	defer stop()
	in.mu.Lock()
	in.count.acked()
	verdict.Value = in.count.last
	in.mu.Unlock()
	if err := answer(s, kindLock, verdict); err != nil {
		return err
	}
	return t.receive(v, in, s, br)
}

// receive delivers frames until the stream or the epoch ends.
func (t *Transport) receive(v *view, in *inSession, s Stream, br *bufio.Reader) error {
	var ack [8]byte
	for {
		seq, frame, err := readFrame(br)
		if err != nil {
			return err
		}
		if v.ctx.Err() != nil {
			return context.Cause(v.ctx)
		}
		in.mu.Lock()
		deliver, err := in.count.accept(seq)
		in.mu.Unlock()
		if err != nil {
			return fmt.Errorf("%w: %w", errSession, err)
		}
		if !deliver {
			continue
		}
		t.h.Lock(in.from, v.epoch, frame)
		in.mu.Lock()
		due := in.count.delivered(len(frame))
		if due {
			in.count.acked()
			binary.BigEndian.PutUint64(ack[:], in.count.last)
		}
		in.mu.Unlock()
		if due {
			if _, err := s.Write(ack[:]); err != nil {
				return err
			}
		}
	}
}

// refuse tells the peer why its stream is refused, and logs it where that
// should not happen.
func (t *Transport) refuse(p peer.ID, s Stream, v *view, k kind, proto protocol.ID, no verdict) error {
	_ = s.SetDeadline(time.Now().Add(openTimeout))
	if no.Status == statusNotMember && v.member {
		t.refused(p, s, proto, errors.New(no.Reason))
	}
	return answer(s, k, no)
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
