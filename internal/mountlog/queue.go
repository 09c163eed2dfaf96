package mountlog

import (
	"io"
	"sync"
	"time"
)

// Queue is between a daemon and where its log goes, which may stand still: a
// watcher that was stopped takes nothing from its pipe, nor does a terminal. Who
// logs never waits. When the queue is full lines are dropped, and when it is
// taken from again that is logged, with their number.
type Queue struct {
	out io.Writer
	// Gap logs that n lines were dropped; it may use Write.
	Gap func(n int)

	mu      sync.Mutex
	lines   [][]byte
	size    int // of lines
	dropped int
	idle    *sync.Cond // of mu: there is nothing to write
	writing bool       // there is a goroutine that writes
}

const (
	// maxQueue bounds what a log holds back, in bytes.
	maxQueue = 1 << 20
	// LastLogs is how long a process that ends waits until its log is written.
	LastLogs = time.Second
)

// NewQueue is a queue before out. Whoever makes it sets Gap before anything is logged, or
// nothing is said of lines that are dropped.
func NewQueue(out io.Writer) *Queue {
	q := &Queue{out: out, Gap: func(int) {}}
	q.idle = sync.NewCond(&q.mu)
	return q
}

// Write takes one line. It never fails.
func (q *Queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size+len(line) > maxQueue {
		q.dropped++
		return len(line), nil
	}
	q.lines = append(q.lines, append([]byte(nil), line...))
	q.size += len(line)
	if !q.writing {
		q.writing = true
		go q.write()
	}
	return len(line), nil
}

// write writes what there is, and ends.
func (q *Queue) write() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.lines) > 0 {
		lines := q.lines
		q.lines = nil // their size counts until they are written
		q.mu.Unlock()
		size := 0
		for _, b := range lines {
			_, _ = q.out.Write(b) // as to a full disk: the line is lost
			size += len(b)
		}
		q.mu.Lock()
		q.size -= size
		if n := q.dropped; n > 0 {
			q.dropped = 0
			q.mu.Unlock()
			q.Gap(n)
			q.mu.Lock()
		}
	}
	q.writing = false
	q.idle.Broadcast()
}

// Flush waits until all is written, for limit at most.
func (q *Queue) Flush(limit time.Duration) {
	over := false
	defer time.AfterFunc(limit, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		over = true
		q.idle.Broadcast()
	}).Stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.writing && !over {
		q.idle.Wait()
	}
}
