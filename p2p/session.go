package p2p

import (
	"fmt"
	"slices"
)

// A session is one direction of the lock channel between two nodes within one
// epoch. Its frames are numbered from 1; the sender keeps them until the
// receiver has acknowledged them, so that a session outlives the streams that
// carry it. The two types of this file are the two ends, without clock, I/O or
// goroutine.

// sendQueue is the sender's end: the frames that were not acknowledged. The
// first of them were written on the current stream, the others wait.
type sendQueue struct {
	frames [][]byte // not acknowledged; frames[head] has number first
	head   int      // frames before it are gone
	first  uint64   // number of frames[head]
	next   uint64   // number of the next frame to write on this stream
	bytes  int      // payload of frames[head:]
}

func newSendQueue() sendQueue { return sendQueue{first: 1, next: 1} }

// end is the number that the next frame will get.
func (q *sendQueue) end() uint64 { return q.first + uint64(len(q.frames)-q.head) }

// push adds a frame, which must not be changed any more.
func (q *sendQueue) push(frame []byte) {
	q.frames = append(q.frames, frame)
	q.bytes += len(frame)
}

// resume begins a new stream, whose receiver has everything up to last. An
// error means that the two ends do not have the same session: it can't go on.
func (q *sendQueue) resume(last uint64) error {
	if last+1 < q.first {
		return fmt.Errorf("the receiver has frames up to %d, but had acknowledged %d", last, q.first-1)
	}
	if last >= q.end() {
		return fmt.Errorf("the receiver has frames up to %d, but only %d were sent", last, q.end()-1)
	}
	q.drop(last)
	q.next = q.first
	return nil
}

// ack takes note that the receiver has everything up to last.
func (q *sendQueue) ack(last uint64) error {
	if last >= q.next {
		return fmt.Errorf("frame %d is acknowledged, but only %d were written", last, q.next-1)
	}
	q.drop(last)
	return nil
}

func (q *sendQueue) drop(last uint64) {
	for q.first <= last {
		q.bytes -= len(q.frames[q.head])
		q.frames[q.head] = nil
		q.head++
		q.first++
	}
	switch {
	case q.head == len(q.frames) && cap(q.frames) > 4096: // after a long queue
		q.frames, q.head = nil, 0
	case q.head == len(q.frames):
		q.frames, q.head = q.frames[:0], 0
	case q.head > 64 && q.head > len(q.frames)/2: // each frame is moved at most once for one that goes
		q.frames, q.head = slices.Delete(q.frames, 0, q.head), 0
	}
}

// take appends waiting frames to b, in order: at least one if there is one,
// and then as long as b stays within limit.
func (q *sendQueue) take(b []byte, limit int) []byte {
	for n := 0; q.next < q.end(); n++ {
		f := q.frames[q.head+int(q.next-q.first)]
		if n > 0 && len(b)+frameHead+len(f) > limit {
			break
		}
		b = appendFrame(b, q.next, f)
		q.next++
	}
	return b
}

// waiting is the number of frames that were not written on this stream.
func (q *sendQueue) waiting() int { return int(q.end() - q.next) }

// unacked is the number of frames that are kept.
func (q *sendQueue) unacked() int { return len(q.frames) - q.head }

// An acknowledgement is due after so many frames or bytes. What is below at
// the end of a burst stays with the sender, unacknowledged: it costs no more
// than this much memory, and no timer.
const (
	ackFrames = 32
	ackBytes  = 64 << 10
)

// recvCount is the receiver's end.
type recvCount struct {
	last   uint64 // every frame up to this number was delivered, once
	frames int    // of them not acknowledged on this stream
	bytes  int
}

// accept says whether the frame with number seq is to be delivered; if not it
// is a duplicate. An error means that frames are missing.
func (c *recvCount) accept(seq uint64) (bool, error) {
	switch {
	case seq <= c.last:
		return false, nil
	case seq > c.last+1:
		return false, fmt.Errorf("frame %d follows on %d", seq, c.last)
	}
	return true, nil
}

// delivered takes note that the frame that accept asked for was delivered, and
// says whether an acknowledgement is due.
func (c *recvCount) delivered(size int) bool {
	c.last++
	c.frames++
	c.bytes += size
	return c.frames >= ackFrames || c.bytes >= ackBytes
}

// acked takes note that last was acknowledged.
func (c *recvCount) acked() { c.frames, c.bytes = 0, 0 }
