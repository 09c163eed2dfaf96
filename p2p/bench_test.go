package p2p

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/dmxfs/dmxfs/locks"
)

// The benchmarks measure between processes: the test binary starts itself
// again as an echo that sends back each frame of the lock channel, and each
// frame of a bare stream, which is what the channel is compared with.

const echoEnv = "DMXFS_P2P_ECHO" // peer ID of the one who measures, and the secret

// bareNetwork takes streams of a protocol of its own past the transport.
type bareNetwork struct {
	Network
	bare func(Stream)
}

type bareEvents struct {
	Events
	bare func(Stream)
}

const bareProtocol protocol.ID = "/dmxfs/bare/1"

func (n bareNetwork) Run(ctx context.Context, ev Events) error {
	return n.Network.Run(ctx, bareEvents{ev, n.bare})
}

func (ev bareEvents) Accept(p peer.ID, proto protocol.ID, s Stream) {
	if proto == bareProtocol {
		ev.bare(s)
		return
	}
	ev.Events.Accept(p, proto, s)
}

func bareEcho(s Stream) {
	br := bufio.NewReaderSize(s, 32<<10)
	var b []byte
	for {
		seq, frame, err := readFrame(br)
		if err != nil {
			return
		}
		b = appendFrame(b[:0], seq, frame)
		if br.Buffered() > 0 {
			continue
		}
		if _, err := s.Write(b); err != nil {
			return
		}
	}
}

func benchHost(secret Secret) (*Host, error) {
	id, err := NewIdentity()
	if err != nil {
		return nil, err
	}
	h, err := NewHost(Options{Identity: id, Secret: secret, Listen: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/0")}})
	if err == nil {
		h.muxer.AddHandler(bareProtocol, nil)
	}
	return h, err
}

// echo is the main function of the other process. It ends when its standard
// input does.
func echo(arg string) error {
	name, content, _ := strings.Cut(arg, " ")
	master, err := peer.Decode(name)
	if err != nil {
		return err
	}
	secret, err := ParseSecret([]byte(content))
	if err != nil {
		return err
	}
	h, err := benchHost(secret)
	if err != nil {
		return err
	}
	var t *Transport
	t = NewTransport(bareNetwork{h, bareEcho}, Handlers{
		Member: func(peer.ID, []byte) {},
		Lock: func(from locks.NodeID, e locks.Epoch, frame []byte) {
			_ = t.Send(e, from, frame)
		},
		Sync: func(locks.NodeID, locks.Epoch, []byte) {},
		Ask:  func(_ context.Context, _ peer.ID, q []byte) ([]byte, error) { return q, nil },
	}, nil)
	self, other := NodeID(h.ID(), 1), NodeID(master, 1)
	if err := t.SetView(1, self, []locks.NodeID{self, other}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	go func() {
		<-h.Ready()
		addrs, _ := h.OwnAddrs()
		fmt.Printf("%s %s\n", h.ID(), addrs[0])
	}()
	return t.Run(ctx)
}

// bench is the process that measures.
type bench struct {
	*Transport
	peers []locks.NodeID
	got   chan struct{}
	frame []byte
}

func newBench(b *testing.B, k int) *bench {
	b.Helper()
	content := base64.RawStdEncoding.EncodeToString(bytes.Repeat([]byte("benchmark"), 5))
	secret, err := ParseSecret([]byte(content))
	if err != nil {
		b.Fatal(err)
	}
	h, err := benchHost(secret)
	if err != nil {
		b.Fatal(err)
	}
	n := &bench{got: make(chan struct{}, 4096), frame: bytes.Repeat([]byte{'x'}, 100)}
	n.Transport = NewTransport(h, Handlers{Lock: func(locks.NodeID, locks.Epoch, []byte) { n.got <- struct{}{} }}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	var infos []peer.AddrInfo
	for range k {
		info := startEcho(b, h.ID(), content)
		infos = append(infos, info)
		n.peers = append(n.peers, NodeID(info.ID, 1))
	}
	n.SetWanted(infos)
	self := NodeID(h.ID(), 1)
	if err := n.SetView(1, self, append(slices.Clone(n.peers), self)); err != nil {
		b.Fatal(err)
	}
	n.round(b, 1) // everything is connected after it
	return n
}

func startEcho(b *testing.B, master peer.ID, content string) peer.AddrInfo {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), echoEnv+"="+master.String()+" "+content)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	id, addr, _ := strings.Cut(strings.TrimSpace(line), " ")
	p, err := peer.Decode(id)
	if err != nil {
		b.Fatal(err)
	}
	return peer.AddrInfo{ID: p, Addrs: []ma.Multiaddr{ma.StringCast(addr)}}
}

// round sends one frame to each peer and waits for all that come back.
func (n *bench) round(b *testing.B, times int) {
	for range times {
		for _, p := range n.peers {
			if err := n.Send(1, p, n.frame); err != nil {
				b.Fatal(err)
			}
		}
		for range n.peers {
			<-n.got
		}
	}
}

// percentiles reports the median and the 99th percentile of one round.
func percentiles(b *testing.B, ns []time.Duration) {
	slices.Sort(ns)
	b.ReportMetric(float64(ns[len(ns)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(ns[len(ns)*99/100].Nanoseconds())/1e3, "p99-µs")
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, k := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("lock/peers=%d", k), func(b *testing.B) {
			n := newBench(b, k)
			n.round(b, 200)
			var ns []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				n.round(b, 1)
				ns = append(ns, time.Since(start))
			}
			percentiles(b, ns)
		})
		b.Run(fmt.Sprintf("bare/peers=%d", k), func(b *testing.B) {
			n := newBench(b, k)
			bare := n.openBare(b)
			bare.round(b, 200)
			var ns []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				bare.round(b, 1)
				ns = append(ns, time.Since(start))
			}
			percentiles(b, ns)
		})
	}
}

// bare is the least that has to be done: the same frames on the same
// connections, written by the one who measures.
type bare struct {
	streams []Stream
	got     chan struct{}
	frame   []byte
	buf     []byte
}

func (n *bench) openBare(b *testing.B) *bare {
	x := &bare{got: make(chan struct{}, 4096), frame: n.frame}
	for _, name := range n.peers {
		p, _, _ := SplitNodeID(name)
		s, err := n.net.Open(b.Context(), p, bareProtocol)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Reset() })
		x.streams = append(x.streams, s)
		go func() {
			br := bufio.NewReaderSize(s, 32<<10)
			for {
				if _, _, err := readFrame(br); err != nil {
					return
				}
				x.got <- struct{}{}
			}
		}()
	}
	return x
}

func (x *bare) round(b *testing.B, times int) {
	for range times {
		for _, s := range x.streams {
			x.buf = appendFrame(x.buf[:0], 1, x.frame)
			if _, err := s.Write(x.buf); err != nil {
				b.Fatal(err)
			}
		}
		for range x.streams {
			<-x.got
		}
	}
}

// BenchmarkThroughput keeps 64 frames in flight.
func BenchmarkThroughput(b *testing.B) {
	const inFlight = 64
	n := newBench(b, 1)
	for range inFlight {
		if err := n.Send(1, n.peers[0], n.frame); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(n.frame)))
	for b.Loop() {
		<-n.got
		if err := n.Send(1, n.peers[0], n.frame); err != nil {
			b.Fatal(err)
		}
	}
	for range inFlight {
		<-n.got
	}
}

// BenchmarkAsk is a question of 100 bytes with an answer of as many, each on a
// stream of its own.
func BenchmarkAsk(b *testing.B) {
	n := newBench(b, 1)
	p, _, _ := SplitNodeID(n.peers[0])
	var ns []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := n.Ask(b.Context(), p, n.frame); err != nil {
			b.Fatal(err)
		}
		ns = append(ns, time.Since(start))
	}
	percentiles(b, ns)
}

func BenchmarkSync(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			n := newBench(b, 1)
			state := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				if err := n.SendSync(b.Context(), n.peers[0], 1, state); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFirstFrame is from a connection that breaks to the next frame that
// gets through: to dial, the handshakes, and to resume the session. Since these
// connections are short-lived, there is firstPause before the dial in it.
func BenchmarkFirstFrame(b *testing.B) {
	n := newBench(b, 1)
	h := n.net.(*Host)
	p, _, _ := SplitNodeID(n.peers[0])
	for b.Loop() {
		_ = h.swarm.ClosePeer(p)
		n.round(b, 1)
	}
}

// BenchmarkRoundTripBesideSync is the round trip while a large state is on its
// way to the same peer.
func BenchmarkRoundTripBesideSync(b *testing.B) {
	n := newBench(b, 1)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		state := make([]byte, 64<<20)
		for ctx.Err() == nil {
			_ = n.SendSync(ctx, n.peers[0], 1, state)
		}
	}()
	var ns []time.Duration
	for b.Loop() {
		start := time.Now()
		n.round(b, 1)
		ns = append(ns, time.Since(start))
	}
	percentiles(b, ns)
	cancel()
	<-done
}
