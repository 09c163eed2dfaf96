package cluster

import (
	"sync"
	"time"
)

// queue runs what is put into it in one goroutine, in order. It takes
// everything at once, whatever the goroutine hangs in: the membership must not
// wait for the engine, the state directory or the log.
type queue struct {
	mu     sync.Mutex
	todo   []func()
	serial uint64 // of what runs now, or ran last
	busy   bool
	closed bool
	wake   chan struct{}
	done   chan struct{} // closed when the goroutine has ended
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// put has f run after all that was put in before. After close it does nothing.
func (q *queue) put(f func()) {
	q.mu.Lock()
	if !q.closed {
		q.todo = append(q.todo, f)
	}
	q.mu.Unlock()
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run works until close, and then through what is left.
func (q *queue) run() {
	defer close(q.done)
	for {
		q.mu.Lock()
		q.busy = false
		var f func()
		if len(q.todo) > 0 {
			f = q.todo[0]
			q.todo[0] = nil
			q.todo = q.todo[1:]
			q.serial++
			q.busy = true
		}
		closed := q.closed
		q.mu.Unlock()
		switch {
		case f != nil:
			f()
		case closed:
			return
		default:
			<-q.wake
		}
	}
}

// at tells whether something runs now, and which it is.
func (q *queue) at() (serial uint64, busy bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.serial, q.busy
}

// close lets the goroutine end when all is done.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

// wait waits for the end of the goroutine after close, as long as patience, and
// reports whether it has come.
func (q *queue) wait(patience time.Duration) bool {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-q.done:
		return true
	case <-t.C:
		return false
	}
}
