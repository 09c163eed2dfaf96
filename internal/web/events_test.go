package web

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// stoppedBrowser reads nothing: what is written to it ends at the deadline, if
// there is one.
type stoppedBrowser struct {
	header   http.Header
	deadline time.Time
	writes   int
}

func (b *stoppedBrowser) Header() http.Header                { return b.header }
func (b *stoppedBrowser) WriteHeader(int)                    {}
func (b *stoppedBrowser) FlushError() error                  { return nil }
func (b *stoppedBrowser) SetWriteDeadline(t time.Time) error { b.deadline = t; return nil }

func (b *stoppedBrowser) Write([]byte) (int, error) {
	b.writes++
	return 0, os.ErrDeadlineExceeded
}

// A browser that is stopped does not keep snapshots going.
func TestEventsToAStoppedBrowser(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Source: twoHosts(false)})
	if err != nil {
		t.Fatal(err)
	}
	b := &stoppedBrowser{header: http.Header{}}
	s.events(b, httptest.NewRequest("GET", "/events", nil).WithContext(t.Context()))
	if b.writes != 1 || time.Until(b.deadline) <= 0 || time.Until(b.deadline) > eventTime {
		t.Errorf("%d writes, the last until %v", b.writes, b.deadline)
	}
	if s.poll.lookers != 0 {
		t.Errorf("%d look on", s.poll.lookers)
	}
}
