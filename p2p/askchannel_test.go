package p2p

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

func TestAnswersOfAllSizes(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	var size int
	b.mu.Lock()
	b.onAsk = func(_ context.Context, from peer.ID, q []byte) ([]byte, error) {
		if from != a.host.ID() || len(q) != size {
			return nil, fmt.Errorf("%d bytes from %s", len(q), from)
		}
		return make([]byte, 3*size), nil
	}
	b.mu.Unlock()
	for _, size = range []int{0, 1, chunk, MaxQuestion} {
		got, err := a.Ask(t.Context(), b.host.ID(), make([]byte, size))
		if err != nil || len(got) != 3*size {
			t.Errorf("%d bytes: answer of %d bytes, %v", size, len(got), err)
		}
	}
	if _, err := a.Ask(t.Context(), b.host.ID(), make([]byte, MaxQuestion+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("a question that is too long: %v", err)
	}
}

func TestQuestionsThatGetNoAnswer(t *testing.T) {
	a, b := startNode(t), startNode(t)
	if _, err := a.Ask(t.Context(), b.host.ID(), nil); !errors.Is(err, ErrNotConnected) {
		t.Errorf("Ask before there is a connection: %v", err)
	}
	connect(t, a, b)
	var handler func(ctx context.Context) ([]byte, error)
	b.mu.Lock()
	b.onAsk = func(ctx context.Context, _ peer.ID, _ []byte) ([]byte, error) { return handler(ctx) }
	b.mu.Unlock()

	handler = func(context.Context) ([]byte, error) {
		return nil, errors.New("no such\nlock " + strings.Repeat("x", 2*maxReason))
	}
	_, err := a.Ask(t.Context(), b.host.ID(), nil)
	var failed *AskError
	if !errors.As(err, &failed) || failed.Peer != b.host.ID() || !strings.HasPrefix(failed.Text, "no such\nlock") || len(failed.Text) != maxReason || strings.Contains(err.Error(), "\n") {
		t.Errorf("an error of the handler: %v", err)
	}

	handler = func(context.Context) ([]byte, error) { return make([]byte, MaxAnswer+1), nil }
	if _, err := a.Ask(t.Context(), b.host.ID(), nil); !errors.As(err, &failed) || !strings.Contains(err.Error(), "too long") {
		t.Errorf("an answer that is too long: %v", err)
	}

	// The handler is told when nobody waits any more. On a busy machine the
	// time may be over before the question has come: then it gets more.
	ended := make(chan error, 1)
	handler = func(ctx context.Context) ([]byte, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	for limit := 50 * time.Millisecond; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := a.Ask(ctx, b.host.ID(), nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &failed) {
			t.Fatalf("a question without answer: %v", err)
		}
		select {
		case <-ended:
			return
		case <-time.After(limit):
		}
	}
}

func TestQuestionsAtTheSameTimeAreBounded(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	var now, most atomic.Int64
	gate := make(chan struct{})
	b.mu.Lock()
	b.onAsk = func(context.Context, peer.ID, []byte) ([]byte, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-gate
		return []byte("yes"), nil
	}
	b.mu.Unlock()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if got, err := a.Ask(t.Context(), b.host.ID(), nil); err != nil || string(got) != "yes" {
				t.Errorf("Ask: %q, %v", got, err)
			}
		})
	}
	poll(t, "as many questions as there may be", func() bool { return now.Load() == askEach })
	close(gate)
	wg.Wait()
	// When one has its answer the next may come before the first is counted out.
	if n := most.Load(); n > 2*askEach {
		t.Errorf("%d questions were answered at the same time", n)
	}
	// Who does not keep to that is told to come again.
	for range 2 * askEach {
		if !b.asks.begin(a.host.ID()) {
			t.Fatal("busy too early")
		}
	}
	if _, err := a.Ask(t.Context(), b.host.ID(), nil); !errors.Is(err, ErrBusy) {
		t.Errorf("Ask of a busy peer: %v", err)
	}
	for range 2 * askEach {
		b.asks.end(a.host.ID())
	}
	if _, err := a.Ask(t.Context(), b.host.ID(), nil); err != nil {
		t.Error(err)
	}
}
