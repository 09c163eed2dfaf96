package p2p

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// Questions that are under way at the same time.
const (
	askEach = 8  // between two peers, in one direction; more wait with the one who asks
	askAll  = 64 // that one node answers; more are told to come again
)

// askLimit bounds the time that the one who asks may give to the one who answers.
const askLimit = 10 * time.Minute

// ErrBusy: the peer answers as many questions as it can already.
var ErrBusy = errors.New("the peer is busy")

// AskError is what the handler of the peer returned instead of an answer.
type AskError struct {
	Peer peer.ID
	Text string
}

// Error quotes the text: it comes from another host.
func (e *AskError) Error() string {
	return fmt.Sprintf("p2p: %s answered with an error: %s", e.Peer, strconv.Quote(e.Text))
}

// askChannel is the ask channel to and from all peers.
type askChannel struct {
	tasks   *tasks
	remotes *remotes
	streams *streams
	handle  func(ctx context.Context, from peer.ID, question []byte) ([]byte, error)

	mu    sync.Mutex
	of    map[peer.ID]int // questions of each peer that are being answered
	inAll int             // sum of them
}

// ask is [Transport.Ask], whose errors say whom it is about.
func (c *askChannel) ask(ctx context.Context, to peer.ID, question []byte) ([]byte, error) {
	r, _ := c.remotes.get(to)
	if r == nil {
		return nil, ErrNotConnected
	}
	select {
	case r.asks <- struct{}{}:
		defer func() { <-r.asks }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s, err := c.streams.open(ctx, r, askProtocol)
	if err != nil {
		return nil, err
	}
	defer s.Reset()
	defer context.AfterFunc(ctx, func() { _ = s.Reset() })()
	deadline, _ := ctx.Deadline()
	ms := min(max(time.Until(deadline).Milliseconds(), 1), math.MaxUint32)
	err = greet(s, kindAsk, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint32(b, uint32(ms))
		b = binary.BigEndian.AppendUint32(b, uint32(len(question)))
		return append(b, question...)
	})
	if err != nil {
		return nil, err
	}
	br := bufio.NewReader(s)
	v, err := readVerdict(br)
	if err != nil {
		return nil, err
	}
	switch v.Status {
	case statusOK:
	case statusBusy:
		return nil, ErrBusy
	case statusFailed:
		return nil, &AskError{to, v.Reason}
	default:
		return nil, v.err()
	}
	if v.Value > MaxAnswer {
		return nil, fmt.Errorf("%w: an answer of %d bytes, the limit is %d", ErrProtocol, v.Value, MaxAnswer)
	}
	return readState(s, br, int(v.Value))
}

// serve answers one question.
func (c *askChannel) serve(p peer.ID, s Stream) error {
	br := bufio.NewReaderSize(s, 4<<10)
	if err := readPreamble(br, kindAsk); err != nil {
		return err
	}
	var b [8]byte
	if _, err := io.ReadFull(br, b[:]); err != nil {
		return unexpected(err)
	}
	limit := time.Duration(binary.BigEndian.Uint32(b[:])) * time.Millisecond
	n := binary.BigEndian.Uint32(b[4:])
	if n > MaxQuestion {
		return fmt.Errorf("%w: a question of %d bytes, the limit is %d", ErrProtocol, n, MaxQuestion)
	}
	if !c.begin(p) {
		return answer(s, kindAsk, verdict{statusBusy, 0, "too many questions at once"})
	}
	defer c.end(p)
	question, err := readState(s, br, int(n))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.tasks.ctx, min(limit, askLimit))
	defer cancel()
	a, err := c.handle(ctx, p, question)
	if err == nil && len(a) > MaxAnswer {
		err = fmt.Errorf("%w: the answer has %d bytes, the limit is %d", ErrTooLong, len(a), MaxAnswer)
	}
	_ = s.SetWriteDeadline(time.Now().Add(progressTimeout))
	if err != nil {
		return answer(s, kindAsk, verdict{statusFailed, 0, err.Error()})
	}
	if err := answer(s, kindAsk, verdict{Value: uint64(len(a))}); err != nil {
		return err
	}
	for len(a) > 0 {
		n := min(len(a), chunk)
		if err := writeWithin(s, a[:n], progressTimeout); err != nil {
			return err
		}
		a = a[n:]
	}
	return nil
}

// begin counts a question, or reports that it is one too many. A peer may
// have more than it should for a moment: it knows that one is answered before
// this node has counted it.
func (c *askChannel) begin(p peer.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[p] >= 2*askEach || c.inAll >= askAll {
		return false
	}
	c.of[p]++
	c.inAll++
	return true
}

func (c *askChannel) end(p peer.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inAll--
	if c.of[p]--; c.of[p] == 0 {
		delete(c.of, p)
	}
}
