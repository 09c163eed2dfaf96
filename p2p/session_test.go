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
)

var sessionSeeds = flag.Int("p2p.sessionseeds", 500, "number of seeds of the test of the two ends of a session")

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

func twoEnds(r *rand.Rand) error {
	q, c := newSendQueue(), recvCount{}
	var sent, got [][]byte
	var wire []byte   // bytes on their way
	var acks []uint64 // that have come whole
	parse := func() error {
		for {
			br := bufio.NewReader(bytes.NewReader(wire))
			seq, frame, err := readFrame(br)
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return nil
			} else if err != nil {
				return err
			}
			wire = wire[frameHead+len(frame):]
			deliver, err := c.accept(seq)
			if err != nil {
				return err
			}
			if !deliver {
				continue
			}
			got = append(got, frame)
			if c.delivered(len(frame)) {
				c.acked()
				acks = append(acks, c.last)
			}
		}
	}
	for range 200 {
		switch k := r.IntN(10); {
		case k < 4:
			for range r.IntN(20) {
				f := fmt.Append(nil, len(sent), string(make([]byte, r.IntN(100))))
				sent = append(sent, f)
				q.push(f)
			}
		case k < 6:
			wire = q.take(wire, len(wire)+r.IntN(500))
		case k < 8:
			if err := parse(); err != nil {
				return err
			}
		case k < 9:
			if len(acks) > 0 {
				n := r.IntN(len(acks))
				if err := q.ack(acks[n]); err != nil {
					return err
				}
				acks = acks[n+1:]
			}
		default: // the stream breaks: something of what is under way arrives
			wire = wire[:r.IntN(len(wire)+1)]
			if err := parse(); err != nil {
				return err
			}
			wire, acks = nil, nil
			c.acked()
			if err := q.resume(c.last); err != nil {
				return err
			}
		}
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
	}
	for q.waiting() > 0 {
		wire = q.take(wire, len(wire)+r.IntN(500))
		if err := parse(); err != nil {
			return err
		}
	}
	if err := parse(); err != nil {
		return err
	}
	if !slices.EqualFunc(sent, got, bytes.Equal) {
		return fmt.Errorf("%d frames were sent, %d came, or others", len(sent), len(got))
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
