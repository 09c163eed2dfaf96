package p2p

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

var sessionSeeds = flag.Int("p2p.sessionseeds", long.Or(200, 500), "number of seeds of the test of the two ends of a session")

// TestTwoEndsOfASession lets a sendQueue and a recvCount talk over streams
// that break at any byte, in any interleaving: guarantees 1 and 2 of the lock
// channel without the goroutines.
func TestTwoEndsOfASession(t *testing.T) {
	for seed := range uint64(*sessionSeeds) {
		if err := twoEnds(rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// ends are the two of a session, with what is on its way between them.
type ends struct {
	q         sendQueue
	c         recvCount
	sent, got [][]byte
	wire      []byte   // bytes on their way
	acks      []uint64 // that have come whole
}

// parse takes the frames from the wire that have come whole.
func (x *ends) parse() error {
	for {
		br := bufio.NewReader(bytes.NewReader(x.wire))
		seq, frame, err := readFrame(br)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		} else if err != nil {
			return err
		}
		x.wire = x.wire[frameHead+len(frame):]
		deliver, err := x.c.accept(seq)
		if err != nil {
			return err
		}
		if !deliver {
			continue
		}
		x.got = append(x.got, frame)
		if x.c.delivered(len(frame)) {
			x.c.acked()
			x.acks = append(x.acks, x.c.last)
		}
	}
}

// step does something of what may happen.
func (x *ends) step(r *rand.Rand) error {
	switch k := r.IntN(10); {
	case k < 4:
		for range r.IntN(20) {
			f := fmt.Append(nil, len(x.sent), string(make([]byte, r.IntN(100))))
			x.sent = append(x.sent, f)
			x.q.push(f)
		}
	case k < 6:
		x.wire = x.q.take(x.wire, len(x.wire)+r.IntN(500))
	case k < 8:
		return x.parse()
	case k < 9:
		if len(x.acks) > 0 {
			n := r.IntN(len(x.acks))
			if err := x.q.ack(x.acks[n]); err != nil {
				return err
			}
			x.acks = x.acks[n+1:]
		}
	default: // the stream breaks: something of what is under way arrives
		x.wire = x.wire[:r.IntN(len(x.wire)+1)]
		if err := x.parse(); err != nil {
			return err
		}
		x.wire, x.acks = nil, nil
		x.c.acked()
		return x.q.resume(x.c.last)
	}
	return nil
}

// check holds the counts of the queue to what is in it.
func (x *ends) check() error {
	q := &x.q
	if q.unacked() != int(q.end()-q.first) || q.waiting() > q.unacked() || q.first > q.next || q.next > q.end() {
		return fmt.Errorf("queue from %d to %d, next %d, %d kept", q.first, q.end(), q.next, q.unacked())
	}
	bytes := 0
	for _, f := range q.frames[q.head:] {
		bytes += len(f)
	}
	if bytes != q.bytes {
		return fmt.Errorf("%d bytes are kept, counted are %d", bytes, q.bytes)
	}
	return nil
}

func twoEnds(r *rand.Rand) error {
	x := ends{q: newSendQueue()}
	for range 200 {
		if err := x.step(r); err != nil {
			return err
		}
		if err := x.check(); err != nil {
			return err
		}
	}
	for x.q.waiting() > 0 {
		x.wire = x.q.take(x.wire, len(x.wire)+r.IntN(500))
		if err := x.parse(); err != nil {
			return err
		}
	}
	if err := x.parse(); err != nil {
		return err
	}
	if !slices.EqualFunc(x.sent, x.got, bytes.Equal) {
		return fmt.Errorf("%d frames were sent, %d came, or others", len(x.sent), len(x.got))
	}
	return nil
}

func TestSessionsThatContradict(t *testing.T) {
	q := newSendQueue()
	for range 5 {
		q.push([]byte("x"))
	}
	for name, err := range map[string]error{
		"the receiver has more than was sent":  q.resume(6),
		"the receiver has the greatest number": q.resume(^uint64(0)),
		"an acknowledgement before any frame":  q.ack(1),
	} {
		if err == nil {
			t.Errorf("accepted: %s", name)
		}
	}
	q.take(nil, 1000)
	if err := q.ack(3); err != nil {
		t.Fatal(err)
	}
	if err := q.ack(2); err != nil {
		t.Errorf("an old acknowledgement is no harm: %v", err)
	}
	if err := q.ack(6); err == nil {
		t.Error("accepted: an acknowledgement of what was never written")
	}
	if err := q.resume(2); err == nil {
		t.Error("accepted: a receiver that has forgotten what it acknowledged")
	}
	if err := q.resume(3); err != nil || q.waiting() != 2 {
		t.Errorf("resume: %v, %d wait", err, q.waiting())
	}
	c := recvCount{last: 3}
	if _, err := c.accept(5); err == nil {
		t.Error("accepted: a gap")
	}
	if ok, err := c.accept(3); ok || err != nil {
		t.Errorf("a duplicate: %v, %v", ok, err)
	}
}

func TestQueueGivesItsMemoryBack(t *testing.T) {
	q := newSendQueue()
	const count = 100_000
	for range count {
		q.push(make([]byte, 8))
	}
	for i := range uint64(count) {
		q.take(nil, 100)
		if err := q.ack(min(i+1, q.next-1)); err != nil {
			t.Fatal(err)
		}
		if len(q.frames) > 2*q.unacked()+128 {
			t.Fatalf("%d places are kept for %d frames", len(q.frames), q.unacked())
		}
	}
	for q.unacked() > 0 {
		q.take(nil, 100)
		if err := q.ack(q.next - 1); err != nil {
			t.Fatal(err)
		}
	}
	if cap(q.frames) != 0 {
		t.Errorf("an empty queue keeps %d places", cap(q.frames))
	}
}

func TestAcknowledgementsAreRare(t *testing.T) {
	var c recvCount
	due := 0
	for range 10 * ackFrames {
		if c.delivered(10) {
			due++
			c.acked()
		}
	}
	if due != 10 {
		t.Errorf("%d acknowledgements for %d small frames", due, 10*ackFrames)
	}
	if !c.delivered(ackBytes) {
		t.Error("none for a long frame")
	}
}
