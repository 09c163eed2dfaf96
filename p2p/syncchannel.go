package p2p

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/semaphore"

	"github.com/dmxfs/dmxfs/locks"
)

// chunk is how much of a state is read or written at once, each within
// progressTimeout.
const chunk = 64 << 10

// syncChannel is the sync channel to and from the members of the view.
type syncChannel struct {
	remotes *remotes
	streams *streams
	slots   *slots
	epochs  *epochs
	handle  func(from locks.NodeID, e locks.Epoch, state []byte)
	budget  *semaphore.Weighted
}

// send is [Transport.SendSync].
func (c *syncChannel) send(ctx context.Context, to locks.NodeID, e locks.Epoch, state []byte) error {
	v := c.epochs.present()
	out := v.out[to]
	switch {
	case v.epoch != e:
		return fmt.Errorf("%w: the present one is %d", ErrEpoch, v.epoch)
	case out == nil:
		return ErrNotMember
	case len(state) > MaxSync:
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLong, len(state), MaxSync)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(v.ctx, func() { cancel(context.Cause(v.ctx)) })()

	r, _ := c.remotes.get(out.peer)
	if r == nil {
		return ErrNotConnected
	}
	s, err := c.streams.openConnected(ctx, r, syncProtocol)
	if err != nil {
		return err
	}
	defer s.Reset()
	defer context.AfterFunc(ctx, func() { _ = s.Reset() })()
	if err := c.transfer(s, v, out, state); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

func (c *syncChannel) transfer(s Stream, v *view, out *outSession, state []byte) error {
	h := hello{Epoch: uint64(v.epoch), From: v.inc, To: out.inc}
	err := greet(s, kindSync, func(b []byte) []byte {
		return binary.BigEndian.AppendUint64(h.append(b), uint64(len(state)))
	})
	if err != nil {
		return err
	}
	if err := await(s); err != nil {
		return err
	}
	for len(state) > 0 {
		n := min(len(state), chunk)
		if err := writeWithin(s, state[:n], progressTimeout); err != nil {
			return err
		}
		state = state[n:]
	}
	return await(s)
}

// await reads a verdict.
func await(s Stream) error {
	v, err := readVerdict(s)
	if err != nil {
		return err
	}
	return v.err()
}

// serve receives a state.
func (c *syncChannel) serve(p peer.ID, s Stream) error {
	br := bufio.NewReaderSize(s, 4<<10)
	if err := readPreamble(br, kindSync); err != nil {
		return err
	}
	h, err := readHello(br)
	if err != nil {
		return err
	}
	var b [8]byte
	if _, err := io.ReadFull(br, b[:]); err != nil {
		return unexpected(err)
	}
	size := binary.BigEndian.Uint64(b[:])
	if size > MaxSync {
		return fmt.Errorf("%w: a state of %d bytes, the limit is %d", ErrProtocol, size, MaxSync)
	}
	sl := c.slots.claim(slotKey{p, h.From, h.To, kindSync}, s)
	defer sl.release()
	_ = s.SetDeadline(time.Time{})
	v, err := c.epochs.await(sl.ctx, locks.Epoch(h.Epoch))
	if err != nil {
		return err
	}
	in, verdict := v.judge(p, h)
	if verdict.Status != statusOK {
		return c.streams.refuse(p, s, v, kindSync, syncProtocol, verdict)
	}
	defer context.AfterFunc(v.ctx, func() { sl.cancel(context.Cause(v.ctx)) })()
	if err := c.budget.Acquire(sl.ctx, int64(size)); err != nil {
		return context.Cause(sl.ctx)
	}
	defer c.budget.Release(int64(size))
	if err := answer(s, kindSync, verdict); err != nil {
		return err
	}
	state, err := readState(s, br, int(size))
	if err != nil {
		return err
	}
	for _, ctx := range []context.Context{sl.ctx, v.ctx} { // one follows the other, but later
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	c.handle(in.from, v.epoch, state)
	_ = s.SetWriteDeadline(time.Now().Add(openTimeout))
	_, err = s.Write(verdict.append(nil))
	return err
}

// readState reads size bytes. Memory is taken as they come, so that a size
// that is not true costs little.
func readState(s Stream, r io.Reader, size int) ([]byte, error) {
	state := make([]byte, 0, min(size, 1<<20))
	for len(state) < size {
		n := min(size-len(state), chunk)
		if cap(state)-len(state) < n {
			bigger := make([]byte, len(state), min(size, 2*cap(state)))
			copy(bigger, state)
			state = bigger
			n = min(n, cap(state)-len(state))
		}
		_ = s.SetReadDeadline(time.Now().Add(progressTimeout))
		m, err := io.ReadFull(r, state[len(state):len(state)+n])
		if err != nil {
			return nil, unexpected(err)
		}
		state = state[:len(state)+m]
	}
	_ = s.SetReadDeadline(time.Time{})
	return state, nil
}
