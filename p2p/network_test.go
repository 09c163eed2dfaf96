package p2p_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/p2ptest"
)

// TestNetworks holds the real network and the one in memory to the same
// contract, so that what a simulation shows of the one is true of the other.
func TestNetworks(t *testing.T) {
	secret, err := p2p.ParseSecret(p2p.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	host := func(t *testing.T) endpoint {
		id, err := p2p.NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		h, err := p2p.NewHost(p2p.Options{Identity: id, Secret: secret, Listen: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/0")}})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	t.Run("host", func(t *testing.T) {
		testNetwork(t, network{host, func(t *testing.T, to, of endpoint) {
			rec, err := of.Record()
			if err != nil {
				t.Fatal(err)
			}
			if p, err := to.AddRecord(rec); err != nil || p != of.ID() {
				t.Fatal(p, err)
			}
		}})
	})
	t.Run("memory", func(t *testing.T) {
		n := p2ptest.New(1, p2ptest.Link{Latency: time.Millisecond})
		next := 0
		testNetwork(t, network{func(*testing.T) endpoint {
			next++
			return n.Endpoint(p2ptest.PeerID(next))
		}, func(*testing.T, endpoint, endpoint) {}})
	})
}

// endpoint is what a host and its likeness in memory have in common.
type endpoint interface {
	p2p.Network
	Ready() <-chan struct{}
	Record() ([]byte, error)
	AddRecord([]byte) (peer.ID, error)
	Revoke([]peer.ID)
}

var (
	_ endpoint = (*p2p.Host)(nil)
	_ endpoint = (*p2ptest.Endpoint)(nil)
)

// side is a running endpoint and what it was told.
type side struct {
	endpoint
	stop func()

	mu     sync.Mutex
	events []string
	accept func(proto protocol.ID, s p2p.Stream)
}

func (s *side) Opened(p peer.ID) { s.note("opened " + p.String()) }
func (s *side) Closed(p peer.ID) { s.note("closed " + p.String()) }
func (s *side) Accept(_ peer.ID, proto protocol.ID, st p2p.Stream) {
	s.mu.Lock()
	f := s.accept
	s.mu.Unlock()
	f(proto, st)
}

func (s *side) note(e string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *side) saw(t *testing.T, e string, n int) {
	t.Helper()
	limit := time.Now().Add(30 * time.Second)
	for {
		s.mu.Lock()
		got := 0
		for _, x := range s.events {
			if x == e {
				got++
			}
		}
		s.mu.Unlock()
		if got == n {
			return
		}
		if got > n || time.Now().After(limit) {
			t.Fatalf("%q happened %d times, want %d", e, got, n)
		}
		time.Sleep(time.Millisecond)
	}
}

// proto is of the streams here.
const proto = protocol.ID("/dmxfs/lock/1")

// network is what makes endpoints, and tells one where another is.
type network struct {
	endpoint  func(*testing.T) endpoint
	introduce func(t *testing.T, to, of endpoint)
}

// testNetwork is what every network has to do.
func testNetwork(t *testing.T, n network) {
	for _, x := range []struct {
		name string
		test func(*testing.T, network)
	}{
		{"connections", testConnections},
		{"streams", testStreams},
		{"reset", testReset},
		{"deadlines", testDeadlines},
		{"reset ends a write that blocks", testResetOfABlockedWrite},
		{"the end of a peer ends its streams", testEndOfAPeer},
		{"revoked", testRevoked},
		{"bad records", testBadRecords},
		{"a context ends Connect and Open", testEndOfAContext},
	} {
		t.Run(x.name, func(t *testing.T) { x.test(t, n) })
	}
}

func (n network) start(t *testing.T) *side {
	s := &side{endpoint: n.endpoint(t), accept: func(protocol.ID, p2p.Stream) {}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, s) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	<-s.Ready()
	return s
}

// pair is two sides that are connected.
func (n network) pair(t *testing.T) (a, b *side) {
	a, b = n.start(t), n.start(t)
	n.introduce(t, a, b)
	if err := a.Connect(t.Context(), b.ID()); err != nil {
		t.Fatal(err)
	}
	a.saw(t, "opened "+b.ID().String(), 1)
	b.saw(t, "opened "+a.ID().String(), 1)
	return a, b
}

// serve has f serve the streams that others open.
func (s *side) serve(t *testing.T, f func(s p2p.Stream)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accept = func(got protocol.ID, s p2p.Stream) {
		if got != proto {
			t.Errorf("a stream of %s, want %s", got, proto)
		}
		f(s)
	}
}

func testConnections(t *testing.T, n network) {
	a, b := n.start(t), n.start(t)
	if _, err := a.Open(t.Context(), b.ID(), proto); !errors.Is(err, p2p.ErrNotConnected) {
		t.Errorf("Open without a connection: %v", err)
	}
	n.introduce(t, a, b)
	for range 2 {
		if err := a.Connect(t.Context(), b.ID()); err != nil {
			t.Fatal(err)
		}
	}
	a.saw(t, "opened "+b.ID().String(), 1)
	b.saw(t, "opened "+a.ID().String(), 1)
	ca, cb := a.Conns(b.ID()), b.Conns(a.ID())
	if len(ca) != 1 || len(cb) != 1 || ca[0].Inbound || !cb[0].Inbound {
		t.Errorf("connections %+v and %+v", ca, cb)
	}
	b.stop()
	a.saw(t, "closed "+b.ID().String(), 1)
	if err := a.Connect(t.Context(), b.ID()); err == nil {
		t.Error("a peer that has ended can be connected")
	}
}

func testStreams(t *testing.T, n network) {
	a, b := n.pair(t)
	b.serve(t, func(s p2p.Stream) {
		got, err := io.ReadAll(s)
		if err != nil {
			t.Error(err)
		}
		if _, err := s.Write(append([]byte("got "), got...)); err != nil {
			t.Error(err)
		}
	})
	for i := range 10 {
		s, err := a.Open(t.Context(), b.ID(), proto)
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Repeat([]byte{byte(i)}, i*100_000)
		go func() {
			for rest := want; len(rest) > 0; {
				k := min(len(rest), 7777)
				if _, err := s.Write(rest[:k]); err != nil {
					t.Error(err)
				}
				rest = rest[k:]
			}
			if err := s.CloseWrite(); err != nil {
				t.Error(err)
			}
		}()
		got, err := io.ReadAll(s)
		if err != nil || !bytes.Equal(got, append([]byte("got "), want...)) {
			t.Errorf("%d bytes came back of %d, %v", len(got), len(want), err)
		}
		if s.Remote() == "" {
			t.Error("the peer has no address")
		}
		_ = s.Close()
	}
}

func testReset(t *testing.T, n network) {
	a, b := n.pair(t)
	errs := make(chan error, 1)
	b.serve(t, func(s p2p.Stream) {
		_, err := io.ReadAll(s)
		errs <- err
	})
	s, err := a.Open(t.Context(), b.ID(), proto)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := s.Read(make([]byte, 1))
		read <- err
	}()
	_ = s.Reset()
	if err := <-errs; err == nil {
		t.Error("the other end reads no error after a reset")
	}
	if err := <-read; err == nil || err == io.EOF {
		t.Errorf("a read that was under way ends with %v", err)
	}
	if _, err := s.Write([]byte("x")); err == nil {
		t.Error("a stream that was reset can be written")
	}
}

func testDeadlines(t *testing.T, n network) {
	a, b := n.pair(t)
	gate := make(chan struct{})
	b.serve(t, func(s p2p.Stream) { <-gate })
	defer close(gate)
	s, err := a.Open(t.Context(), b.ID(), proto)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	timeout := func(err error) bool {
		var e interface{ Timeout() bool }
		return errors.As(err, &e) && e.Timeout() || errors.Is(err, os.ErrDeadlineExceeded)
	}
	_ = s.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	if _, err := s.Read(make([]byte, 1)); !timeout(err) {
		t.Errorf("Read: %v", err)
	}
	// Nobody reads: sooner or later a write blocks.
	var total int
	for {
		_ = s.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		k, err := s.Write(make([]byte, 10<<10))
		total += k
		if err != nil {
			if !timeout(err) {
				t.Errorf("Write: %v", err)
			}
			break
		}
		if total > 10<<20 {
			t.Fatal("a stream that nobody reads takes everything")
		}
	}
	if total < 100<<10 {
		t.Errorf("only %d bytes fit on their way", total)
	}
}

func testResetOfABlockedWrite(t *testing.T, n network) {
	a, b := n.pair(t)
	gate := make(chan struct{})
	b.serve(t, func(s p2p.Stream) { <-gate })
	defer close(gate)
	s, err := a.Open(t.Context(), b.ID(), proto)
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := s.Write(make([]byte, 1<<20))
		wrote <- err
	}()
	_ = s.Reset()
	if err := <-wrote; err == nil {
		t.Error("the write succeeded")
	}
}

func testEndOfAPeer(t *testing.T, n network) {
	a, b := n.pair(t)
	b.serve(t, func(s p2p.Stream) { _, _ = io.ReadAll(s) })
	s, err := a.Open(t.Context(), b.ID(), proto)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(s)
		read <- err
	}()
	b.stop()
	if err := <-read; err == nil {
		t.Error("the stream ended as if all were well")
	}
}

func testRevoked(t *testing.T, n network) {
	a, b := n.pair(t)
	b.Revoke([]peer.ID{a.ID()})
	a.saw(t, "closed "+b.ID().String(), 1)
	b.saw(t, "closed "+a.ID().String(), 1)
	n.introduce(t, b, a)
	if err := b.Connect(t.Context(), a.ID()); !errors.Is(err, p2p.ErrRefused) {
		t.Errorf("Connect to a revoked peer: %v", err)
	}
}

func testBadRecords(t *testing.T, n network) {
	a := n.start(t)
	if _, err := a.AddRecord([]byte("x")); !errors.Is(err, p2p.ErrBadRecord) {
		t.Errorf("AddRecord: %v", err)
	}
}

func testEndOfAContext(t *testing.T, n network) {
	a, b := n.pair(t)
	c := n.start(t)
	n.introduce(t, a, c)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("enough"))
	if err := a.Connect(ctx, c.ID()); err == nil {
		t.Error("Connect: no error")
	}
	if _, err := a.Open(ctx, b.ID(), proto); err == nil {
		t.Error("Open: no error")
	}
}
