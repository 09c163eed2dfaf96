package p2p

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/locks"
)

// inSession is this node's end of the session from a member. It needs no mutex:
// one stream at a time serves it, see claim.
type inSession struct {
	from  locks.NodeID
	count recvCount
}

// serve receives the session that p opens on s.
func (c *lockChannel) serve(p peer.ID, s Stream) error {
	br := bufio.NewReaderSize(s, 32<<10)
	if err := readPreamble(br, kindLock); err != nil {
		return err
	}
	h, err := readHello(br)
	if err != nil {
		return err
	}
	sl := c.slots.claim(slotKey{p, h.From, h.To, kindLock}, s)
	defer sl.release()
	_ = s.SetDeadline(time.Time{})
	// A session of a newer epoch waits. Nothing of it has been sent yet, so it
	// costs no memory here, and the sender keeps its frames as it does anyway.
	v, err := c.epochs.await(sl.ctx, locks.Epoch(h.Epoch))
	if err != nil {
		return err
	}
	in, verdict := v.judge(p, h)
	if verdict.Status != statusOK {
		return c.streams.refuse(p, s, v, kindLock, lockProtocol, verdict)
	}
	stop := context.AfterFunc(v.ctx, func() { _ = s.Reset() })
	defer stop()
	in.count.acked()
	verdict.Value = in.count.last
	if l := lanesOf(s); l != nil {
		return c.receiveByLane(v, in, s, br, l, verdict)
	}
	if err := answer(s, kindLock, verdict); err != nil {
		return err
	}
	return c.receive(v, in, s, br)
}

// receive delivers frames until the stream or the epoch ends.
func (c *lockChannel) receive(v *view, in *inSession, s Stream, br *bufio.Reader) error {
	var ack [8]byte
	for {
		seq, frame, err := readFrame(br)
		if err != nil {
			return err
		}
		if v.ctx.Err() != nil {
			return context.Cause(v.ctx)
		}
		deliver, err := in.count.accept(seq)
		if err != nil {
			return fmt.Errorf("%w: %w", errSession, err)
		}
		if !deliver {
			continue
		}
		c.handle(in.from, v.epoch, frame)
		if !in.count.delivered(len(frame)) {
			continue
		}
		binary.BigEndian.PutUint64(ack[:], in.count.last)
		if _, err := s.Write(ack[:]); err != nil {
			return err
		}
		in.count.acked()
	}
}
