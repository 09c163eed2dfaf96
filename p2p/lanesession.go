package p2p

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// A session of the lock channel whose frames come by a lane: the stream carries what
// begins it, and the acknowledgements.

// laneWindow is how much of a session may be on its way by a lane, as [streamWindow] is
// for a stream: what else goes over the connection waits behind it.
const laneWindow = streamWindow

// laneWriter is the sender's end of a lane.
type laneWriter struct {
	ctx   context.Context // of the session's stream
	lanes *lanes
	id    uint32
	more  chan struct{} // taken may have grown

	written, taken atomic.Uint64 // bytes
}

// readLane reads which lane the receiver of a session has opened.
func readLane(ctx context.Context, l *lanes, r io.Reader) (*laneWriter, error) {
	var b [laneIDLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return nil, unexpected(err)
	}
	return &laneWriter{ctx: ctx, lanes: l, id: binary.BigEndian.Uint32(b[:]), more: make(chan struct{}, 1)}, nil
}

// Write writes b as the window lets it.
func (w *laneWriter) Write(b []byte) (n int, err error) {
	for n < len(b) {
		room := laneWindow - int(w.written.Load()-w.taken.Load())
		if room == 0 {
			select {
			case <-w.more:
				continue
			case <-w.ctx.Done():
				return n, context.Cause(w.ctx)
			}
		}
		some := b[n:min(len(b), n+room, n+longestRecord-laneIDLen)]
		w.written.Add(uint64(len(some)))
		if err := w.lanes.send(w.ctx, w.id, some); err != nil {
			return n, err
		}
		n += len(some)
	}
	return n, nil
}

// setTaken is told how much the receiver has taken of all that was written.
func (w *laneWriter) setTaken(taken uint64) error {
	if written := w.written.Load(); taken < w.taken.Load() || taken > written {
		return fmt.Errorf("%d bytes are taken, after %d of %d that were written", taken, w.taken.Load(), written)
	}
	w.taken.Store(taken)
	notify(w.more)
	return nil
}

// laneReceiver is the receiver's end. Frames are delivered by the goroutine that reads the
// connection, if Handlers.LockNow takes them; else, and as long as there are any of these,
// by that of the session. So only one of the two uses in.count at a time.
type laneReceiver struct {
	c    *lockChannel
	v    *view
	in   *inSession
	s    Stream
	wake chan struct{} // there is something for the goroutine of the session
	part []byte        // of a frame, of the goroutine that reads the connection

	mu      sync.Mutex
	later   []numbered // for the goroutine of the session
	bytes   int        // of those, and of the one that it delivers, with their heads
	busy    bool       // it delivers one, or is about to
	last    uint64     // the frame that is to be acknowledged
	arrived uint64     // how many bytes have come,
	told    uint64     // and of how many the sender was told, so that it may write on
	due     bool       // an acknowledgement is to be written
	failed  error      // why the session cannot go on
}

// receiveByLane is receive, for a session whose frames come by a lane of l.
func (c *lockChannel) receiveByLane(v *view, in *inSession, s Stream, br *bufio.Reader, l *lanes, ok verdict) error {
	r := &laneReceiver{c: c, v: v, in: in, s: s, last: ok.Value, wake: make(chan struct{}, 1)}
	id := l.receiver(r.take)
	defer l.shut(id)
	if _, err := s.Write(binary.BigEndian.AppendUint32(ok.append(appendPreamble(nil, kindLock)), id)); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := br.ReadByte()
		if err == nil {
			err = fmt.Errorf("%w: bytes in the stream of a session whose frames come by a lane", errSession)
		}
		ended <- err
		close(ended)
	}()
	err := r.run(ended)
	_ = s.Reset() // ends the read
	for range ended {
	}
	return err
}

// run delivers and acknowledges what take leaves to it, until the session fails or ends.
func (r *laneReceiver) run(ended <-chan error) error {
	for {
		select {
		case err := <-ended:
			return err
		case <-r.wake:
		}
		x, is, ack, err := r.next()
		if err != nil {
			return err
		}
		if len(ack) > 0 {
			if _, err := r.s.Write(ack); err != nil {
				return err
			}
		}
		if is {
			if r.v.ctx.Err() == nil {
				r.deliver(x, r.handle)
			}
			r.delivered(x)
		}
	}
}

// next is what there is to do for run: a frame to deliver, and an acknowledgement to write.
func (r *laneReceiver) next() (x numbered, is bool, ack []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return x, false, nil, r.failed
	}
	if r.due {
		r.due = false
		if r.bytes < laneWindow {
			r.told = r.arrived
		}
		ack = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.last), r.told)
	}
	if is = len(r.later) > 0; is {
		x, r.later[0] = r.later[0], numbered{}
		r.later = r.later[1:]
	}
	return x, is, ack, nil
}

// delivered is called when what next returned is delivered, or its epoch is over.
func (r *laneReceiver) delivered(x numbered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes -= x.size()
	r.tell()
	if r.busy = len(r.later) > 0; r.busy {
		notify(r.wake)
	} else {
		r.later = nil
	}
}

// count counts bytes that have come.
func (r *laneReceiver) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrived += uint64(n)
	r.tell()
}

// tell has the sender told in time how many bytes have come, unless too many wait here.
// REQUIRES: mu held.
func (r *laneReceiver) tell() {
	if r.arrived-r.told >= ackBytes && r.bytes < laneWindow && !r.due {
		r.due = true
		notify(r.wake)
	}
}

// take takes what comes by the lane. It is called by the goroutine that reads the
// connection, and does not wait. b is the caller's.
func (r *laneReceiver) take(b []byte) {
	defer r.count(len(b)) // when it is known what of it waits
	if len(r.part) > 0 {
		r.part = append(r.part, b...)
		b = r.part
	}
	for {
		now, on := r.state()
		if !on {
			r.part = nil
			return
		}
		x, rest, err := cutFrame(b)
		if err != nil {
			r.fail(err)
			return
		}
		if rest == nil { // some of it is to come
			r.part = append(r.part[:0], b...)
			if len(b) == 0 && cap(r.part) > keepBuf {
				r.part = nil // after a long frame
			}
			return
		}
		if !now || !r.deliver(x, r.now) {
			r.keep(x)
		}
		b = rest
	}
}

// state says whether take may deliver a frame, and whether the session goes on.
func (r *laneReceiver) state() (now, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.busy, r.failed == nil && r.v.ctx.Err() == nil
}

// longestNow is the longest frame that take delivers: what longer ones say takes time.
const longestNow = 4 << 10

// now is handle of a frame that takes moments.
func (r *laneReceiver) now(frame []byte) bool {
	f := r.c.handleNow
	return f != nil && len(frame) <= longestNow && f(r.in.from, r.v.epoch, frame)
}

// handle hands a frame over, which may take its time.
func (r *laneReceiver) handle(frame []byte) bool {
	r.c.handle(r.in.from, r.v.epoch, frame)
	return true
}

// deliver delivers a frame by handle, unless it is a duplicate. It is false if handle was:
// then nothing has happened.
func (r *laneReceiver) deliver(x numbered, handle func([]byte) bool) bool {
	deliver, err := r.in.count.accept(x.seq)
	switch {
	case err != nil:
		r.fail(fmt.Errorf("%w: %w", errSession, err))
		return true
	case !deliver:
		return true
	case !handle(x.frame):
		return false
	}
	if r.in.count.delivered(len(x.frame)) {
		r.in.count.acked()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last, r.due = r.in.count.last, true
		notify(r.wake)
	}
	return true
}

// mostLater is more than ever waits of an honest sender: less than a window when it was told
// last what has come, a window that it may write then, and what had come of one frame.
const mostLater = 2*laneWindow + frameHead + MaxFrame

// keep has the goroutine of the session deliver a frame.
func (r *laneReceiver) keep(x numbered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes >= mostLater {
		r.failed = cmp.Or(r.failed, fmt.Errorf("%w: %d bytes wait to be taken, after a window of %d", errSession, r.bytes, laneWindow))
	} else {
		x.frame = bytes.Clone(x.frame)
		r.later, r.bytes, r.busy = append(r.later, x), r.bytes+x.size(), true
	}
	notify(r.wake)
}

func (r *laneReceiver) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = cmp.Or(r.failed, err)
	notify(r.wake)
}
