package p2ptest

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/p2p"
)

// window is how much of a stream may be written and not read.
const window = 256 << 10

var (
	errReset  = errors.New("p2ptest: stream reset")
	errClosed = errors.New("p2ptest: stream closed")
)

// stream is one end of a stream.
type stream struct {
	x        *end
	id       uint64
	accepted chan struct{} // closed when the other end has it
	gone     chan struct{} // closed by fail
	in       inbox
	read     deadline
	write    deadline

	mu     sync.Mutex
	peer   *inbox // of the other end
	ended  bool   // nothing can be written any more
	failed bool
}

var _ p2p.Stream = (*stream)(nil)

func newStream(x *end, id uint64) *stream {
	// Until it meets another end, what is written goes nowhere.
	nowhere := &inbox{failure: errReset}
	s := &stream{x: x, id: id, peer: nowhere, accepted: make(chan struct{}), gone: make(chan struct{})}
	s.in.changed = make(chan struct{})
	s.read.expired = make(chan struct{})
	s.write.expired = make(chan struct{})
	return s
}

// inbox is what has come and was not read, and what is on its way to it.
type inbox struct {
	mu      sync.Mutex
	changed chan struct{} // closed, and made anew, at every change
	buf     []byte
	taken   int // bytes of the window that are in use
	eof     bool
	failure error
}

func (b *inbox) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *inbox) put(data []byte) { b.change(func() { b.buf = append(b.buf, data...) }) }
func (b *inbox) finish()         { b.change(func() { b.eof = true }) }
func (b *inbox) fail(err error) {
	b.change(func() {
		if b.failure == nil {
			b.failure, b.buf = err, nil
		}
	})
}

func (b *inbox) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failure
}

// reserve takes up to n bytes of the window, and says what to wait for when
// there are none. An end that was given up swallows everything.
func (b *inbox) reserve(n int) (int, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure != nil {
		return n, nil
	}
	n = min(n, window-b.taken)
	b.taken += n
	return n, b.changed
}

// Read reads what has come.
func (s *stream) Read(p []byte) (int, error) {
	for {
		s.in.mu.Lock()
		changed := s.in.changed
		switch {
		case s.in.failure != nil:
			defer s.in.mu.Unlock()
			return 0, s.in.failure
		case len(s.in.buf) > 0:
			n := copy(p, s.in.buf)
			s.in.buf = s.in.buf[n:]
			s.in.taken -= n
			close(s.in.changed)
			s.in.changed = make(chan struct{})
			s.in.mu.Unlock()
			return n, nil
		case s.in.eof:
			s.in.mu.Unlock()
			return 0, io.EOF
		}
		s.in.mu.Unlock()
		select {
		case <-changed:
		case <-s.read.done():
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// Write sends p, and blocks while the window is full.
func (s *stream) Write(p []byte) (int, error) {
	total := 0
	for len(p) > 0 {
		if err := s.writable(); err != nil {
			return total, err
		}
		n, changed := s.other().reserve(len(p))
		if n == 0 {
			select {
			case <-changed:
			case <-s.gone:
			case <-s.write.done():
				return total, os.ErrDeadlineExceeded
			}
			continue
		}
		s.x.send(segment{kind: dataSegment, stream: s.id, data: slices.Clone(p[:n])})
		p = p[n:]
		total += n
	}
	return total, nil
}

func (s *stream) writable() error {
	select {
	case <-s.write.done():
		return os.ErrDeadlineExceeded
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failed:
		return s.in.err()
	case s.ended:
		return errClosed
	}
	return nil
}

// other is where what is written here goes to. Looking there for the window
// does not wait for the latency, which makes the window a little wider than a
// real one.
func (s *stream) other() *inbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peer
}

// meet lets the two ends of a stream know each other.
func (s *stream) meet(in *inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peer = in
}

// CloseWrite ends what is written.
func (s *stream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.failed {
		return nil
	}
	s.ended = true
	s.x.send(segment{kind: closeSegment, stream: s.id})
	return nil
}

// Close gives the stream up; what was written arrives.
func (s *stream) Close() error {
	_ = s.CloseWrite()
	s.fail(errClosed)
	return nil
}

// Reset gives the stream up at both ends.
func (s *stream) Reset() error {
	if s.fail(errReset) {
		s.x.send(segment{kind: resetSegment, stream: s.id})
	}
	return nil
}

// fail ends the stream here. It reports whether it had not ended before.
func (s *stream) fail(err error) bool {
	s.mu.Lock()
	if s.failed {
		s.mu.Unlock()
		return false
	}
	s.failed = true
	s.mu.Unlock()
	s.in.fail(err)
	close(s.gone)
	s.x.mu.Lock()
	delete(s.x.streams, s.id)
	s.x.mu.Unlock()
	return true
}

// Remote is the peer, for people.
func (s *stream) Remote() string { return "memory " + s.x.peer.ShortString() }

// SetDeadline sets both deadlines.
func (s *stream) SetDeadline(t time.Time) error {
	s.read.set(t)
	s.write.set(t)
	return nil
}

// SetReadDeadline bounds Read.
func (s *stream) SetReadDeadline(t time.Time) error {
	s.read.set(t)
	return nil
}

// SetWriteDeadline bounds Write.
func (s *stream) SetWriteDeadline(t time.Time) error {
	s.write.set(t)
	return nil
}

// deadline is a channel that is closed when a time has come.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	expired chan struct{}
	past    bool
	n       int // counts calls of set, so that a timer that is late does nothing
}

func (d *deadline) done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

// set changes the deadline, also for who waits on it already, unless it has
// passed.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.past {
		d.expired, d.past = make(chan struct{}), false
	}
	if t.IsZero() {
		return
	}
	n := d.n
	d.timer = time.AfterFunc(time.Until(t), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.n == n {
			d.past = true
			close(d.expired)
		}
	})
}
