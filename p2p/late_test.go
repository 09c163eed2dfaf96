package p2p

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/locks"
)

// silentStream is a stream of a peer that has said something, and of which nobody
// says that it has ended.
type silentStream struct {
	said bytes.Buffer
	end  chan struct{}
}

func (s *silentStream) Read(b []byte) (int, error) {
	if n, err := s.said.Read(b); err == nil {
		return n, nil
	}
	<-s.end
	return 0, io.ErrClosedPipe
}

func (s *silentStream) Reset() error {
	select {
	case <-s.end:
	default:
		close(s.end)
	}
	return nil
}

func (s *silentStream) Write(b []byte) (int, error)      { return len(b), nil }
func (s *silentStream) CloseWrite() error                { return nil }
func (s *silentStream) Close() error                     { return s.Reset() }
func (s *silentStream) SetDeadline(time.Time) error      { return nil }
func (s *silentStream) SetReadDeadline(time.Time) error  { return nil }
func (s *silentStream) SetWriteDeadline(time.Time) error { return nil }
func (s *silentStream) Remote() string                   { return "nowhere" }

// A stream can be served from just after its connection has ended, which then tells
// nobody of it. It does not wait for ever for its epoch.
func TestNoStreamWaitsForEverForItsEpoch(t *testing.T) {
	for _, k := range []kind{kindLock, kindSync} {
		synctest.Test(t, func(t *testing.T) {
			tr := NewTransport(nil, Handlers{
				Lock: func(locks.NodeID, locks.Epoch, []byte) {},
				Sync: func(locks.NodeID, locks.Epoch, []byte) {},
			}, nil)
			p := peer.ID("somebody")
			tr.slots.disconnected(p) // it comes too late for that
			s := &silentStream{end: make(chan struct{})}
			s.said.Write(hello{Epoch: 7, From: 1, To: 1}.append(appendPreamble(nil, k)))
			serve := tr.lock.serve
			if k == kindSync {
				s.said.Write(make([]byte, 8)) // the size of a state
				serve = tr.syncs.serve
			}
			served := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			go func() { served <- serve(p, s) }()
			select {
			case err := <-served:
				if !errors.Is(err, errEpochLate) || time.Since(began) != epochTimeout {
					t.Errorf("kind %d: %v after %v, want %v after %v", k, err, time.Since(began), errEpochLate, epochTimeout)
				}
			case <-ctx.Done():
				t.Errorf("kind %d: it still waits after an hour", k)
				tr.tasks.end(ErrClosed)
				<-served
			}
			if len(tr.slots.all) > 0 {
				t.Errorf("kind %d: it is served still", k)
			}
		})
	}
}
