package p2ptest

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/dmxfs/dmxfs/p2p"
)

// rig is two endpoints; the first opens streams, the second reads them and
// notes when what comes.
type rig struct {
	n    *Network
	a, b *Endpoint

	mu     sync.Mutex
	got    []arrival
	closed [2]time.Duration // when the endpoints were told of the end
	start  time.Time
}

type arrival struct {
	text string
	at   time.Duration
}

type rigEvents struct {
	r *rig
	i int
}

func (e rigEvents) Opened(peer.ID) {}
func (e rigEvents) Closed(peer.ID) {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	e.r.closed[e.i] = time.Since(e.r.start)
}

func (e rigEvents) Accept(_ peer.ID, _ protocol.ID, s p2p.Stream) {
	b := make([]byte, 100)
	for {
		n, err := s.Read(b)
		if err != nil {
			return
		}
		e.r.mu.Lock()
		e.r.got = append(e.r.got, arrival{string(b[:n]), time.Since(e.r.start)})
		e.r.mu.Unlock()
	}
}

// withRig runs f with a connection whose links take 10 ms.
func withRig(t *testing.T, f func(t *testing.T, r *rig, s p2p.Stream)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{n: New(1, Link{Latency: 10 * time.Millisecond}), start: time.Now()}
		r.a, r.b = r.n.Endpoint(PeerID(0)), r.n.Endpoint(PeerID(1))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i, e := range []*Endpoint{r.a, r.b} {
			wg.Go(func() {
				if err := e.Run(ctx, rigEvents{r, i}); err != nil {
					t.Error(err)
				}
			})
			<-e.Ready()
		}
		if err := r.a.Connect(ctx, r.b.ID()); err != nil {
			t.Fatal(err)
		}
		s, err := r.a.Open(ctx, r.b.ID(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(r.start); d != 40*time.Millisecond {
			t.Errorf("to connect and to open a stream took %v, want two round trips, 40ms", d)
		}
		r.start = time.Now()
		f(t, r, s)
		cancel()
		wg.Wait()
	})
}

func (r *rig) ends() [2]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

func (r *rig) want(t *testing.T, want ...arrival) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) != len(want) {
		t.Fatalf("got %v, want %v", r.got, want)
	}
	for i := range want {
		if r.got[i] != want[i] {
			t.Errorf("got %v, want %v", r.got[i], want[i])
		}
	}
}

func write(t *testing.T, s io.Writer, text string) {
	t.Helper()
	if _, err := s.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestLatencyKeepsTheOrder(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig, s p2p.Stream) {
		write(t, s, "one")
		r.n.Set(r.a.ID(), r.b.ID(), Link{Latency: time.Millisecond})
		time.Sleep(time.Millisecond)
		write(t, s, "two") // can't overtake
		time.Sleep(20 * time.Millisecond)
		write(t, s, "three")
		time.Sleep(time.Second)
		text := ""
		r.mu.Lock()
		for _, a := range r.got {
			text += a.text + " "
			if a.at < 10*time.Millisecond {
				t.Errorf("%q came after %v", a.text, a.at)
			}
		}
		r.mu.Unlock()
		if text != "one two three " && text != "onetwo three " { // they come at the same moment
			t.Errorf("got %q", text)
		}
	})
}

func TestShortCutOnlyDelays(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig, s p2p.Stream) {
		r.n.Cut(r.a.ID(), r.b.ID())
		write(t, s, "held")
		time.Sleep(900 * time.Millisecond)
		r.want(t)
		r.n.Heal(r.a.ID(), r.b.ID())
		time.Sleep(time.Second)
		r.want(t, arrival{"held", 900 * time.Millisecond})
		if c := r.ends(); c[0] != 0 || c[1] != 0 {
			t.Errorf("the connection ended: %v", c)
		}
	})
}

// Either direction is enough, since keep-alive needs both.
func TestLongCutEndsTheConnectionAtBothEnds(t *testing.T) {
	for _, forth := range []bool{true, false} {
		withRig(t, func(t *testing.T, r *rig, s p2p.Stream) {
			from, to := r.a.ID(), r.b.ID()
			if !forth {
				from, to = to, from
			}
			r.n.Cut(from, to)
			if forth {
				write(t, s, "lost")
			}
			time.Sleep(3 * time.Second)
			r.n.Heal(from, to)
			time.Sleep(time.Second)
			r.want(t)
			for i, at := range r.ends() {
				if at < keepAlive || at > 2*keepAlive {
					t.Errorf("endpoint %d was told of the end after %v", i, at)
				}
			}
			if _, err := s.Write([]byte("x")); err == nil {
				t.Error("the stream lives")
			}
		})
	}
}

// When only one end has lost patience, the other learns of it.
func TestNoConnectionStaysHalfOpen(t *testing.T) {
	for d := keepAlive; d < 2*keepAlive; d += 100 * time.Millisecond {
		withRig(t, func(t *testing.T, r *rig, s p2p.Stream) {
			r.n.Cut(r.a.ID(), r.b.ID())
			time.Sleep(d)
			r.n.Heal(r.a.ID(), r.b.ID())
			time.Sleep(time.Second)
			if c := r.ends(); (c[0] == 0) != (c[1] == 0) {
				t.Errorf("after a cut of %v the ends were told at %v", d, c)
			}
		})
	}
}

func TestBreakLosesWhatIsUnderWay(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig, s p2p.Stream) {
		write(t, s, "here")
		time.Sleep(15 * time.Millisecond)
		write(t, s, "lost")
		r.n.Break(r.b.ID(), r.a.ID())
		time.Sleep(time.Second)
		r.want(t, arrival{"here", 10 * time.Millisecond})
		if err := r.a.Connect(t.Context(), r.b.ID()); err != nil {
			t.Errorf("Connect after a break: %v", err)
		}
	})
}

func TestDialTakesAnAnswer(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig, s p2p.Stream) {
		r.n.Break(r.a.ID(), r.b.ID())
		r.n.Cut(r.b.ID(), r.a.ID())
		start := time.Now()
		if err := r.a.Connect(t.Context(), r.b.ID()); err == nil || time.Since(start) != dialTimeout {
			t.Errorf("Connect over a link that is cut on the way back: %v after %v", err, time.Since(start))
		}
		if err := r.a.Connect(t.Context(), PeerID(7)); err == nil {
			t.Error("a peer that is not there was connected")
		}
	})
}

func TestOnePeerRunsOnce(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig, s p2p.Stream) {
		if err := r.n.Endpoint(r.a.ID()).Run(t.Context(), rigEvents{r, 0}); err == nil {
			t.Error("a second endpoint of a peer runs beside the first")
		}
	})
}
