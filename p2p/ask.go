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

// Ask asks a connected peer a question and waits for the answer, for as long as
// ctx allows, at most ten minutes, or 30 seconds if it has no deadline. Errors
// are [ErrNotConnected], [ErrBusy], an [*AskError], those of ctx, or that the
// connection has failed: the question may then have been answered or not.
func (t *Transport) Ask(ctx context.Context, to peer.ID, question []byte) ([]byte, error) {
	if len(question) > MaxQuestion {
		return nil, fmt.Errorf("p2p: ask %s: %w: a question of %d bytes, the limit is %d", to, ErrTooLong, len(question), MaxQuestion)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	a, err := t.ask(ctx, to, question)
	if err == nil {
		return a, nil
	}
	var failed *AskError
	if errors.As(err, &failed) {
		return nil, err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("p2p: ask %s: %w", to, err)
}

func (t *Transport) ask(ctx context.Context, to peer.ID, question []byte) ([]byte, error) {
	t.mu.Lock()
	r := t.remotes[to]
	t.mu.Unlock()
	if r == nil {
		return nil, ErrNotConnected
	}
	select {
	case r.asks <- struct{}{}:
		defer func() { <-r.asks }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s, err := t.open(ctx, r, askProtocol)
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

// serveAsk answers one question.
func (t *Transport) serveAsk(p peer.ID, s Stream) error {
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
	if !t.beginAsk(p) {
		return answer(s, kindAsk, verdict{statusBusy, 0, "too many questions at once"})
	}
	defer t.endAsk(p)
	question, err := readState(s, br, int(n))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.base, min(limit, askLimit))
	defer cancel()
	a, err := t.h.Ask(ctx, p, question)
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

// beginAsk counts a question, or reports that it is one too many. A peer may
// have more than it should for a moment: it knows that one is answered before
// this node has counted it.
func (t *Transport) beginAsk(p peer.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking[p] >= 2*askEach || t.askings >= askAll {
		return false
	}
	t.asking[p]++
	t.askings++
	return true
}

func (t *Transport) endAsk(p peer.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.askings--
	if t.asking[p]--; t.asking[p] == 0 {
		delete(t.asking, p)
	}
}
