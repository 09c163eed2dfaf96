package p2p

import (
	"context"
	"errors"
	"sync"
)

// tasks are the goroutines of a transport. They end soon after ctx, and Run
// waits for them.
type tasks struct {
	ctx context.Context
	end context.CancelCauseFunc

	mu      sync.Mutex
	state   runState
	pending []func()       // goroutines to start when Run begins
	wg      sync.WaitGroup // all goroutines; Add only under mu while running
}

type runState int

const (
	idle runState = iota
	running
	closed
)

func newTasks() *tasks {
	t := new(tasks)
	t.ctx, t.end = context.WithCancelCause(context.Background())
	return t
}

// begin starts what was spawned before.
func (t *tasks) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != idle {
		return errors.New("p2p: Run called twice")
	}
	t.state = running
	for _, f := range t.pending {
		t.wg.Go(f)
	}
	t.pending = nil
	return nil
}

// spawn starts a goroutine, unless the transport is closed.
func (t *tasks) spawn(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.state {
	case idle:
		t.pending = append(t.pending, f)
	case running:
		t.wg.Go(f)
	case closed:
	}
}

func (t *tasks) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state == closed
}

// close ends all goroutines and waits for them.
func (t *tasks) close() {
	t.mu.Lock()
	t.state = closed
	t.mu.Unlock()
	t.end(ErrClosed)
	t.wg.Wait()
}
