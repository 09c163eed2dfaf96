package p2p

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/dmxfs/dmxfs/locks"
)

// logBuffer collects the log of a node.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// node is a transport on a real host on the loopback interface.
type node struct {
	*Transport
	host *Host
	name locks.NodeID
	log  *logBuffer
	stop func() error // ends Run and returns its error; once

	mu      sync.Mutex
	changed chan struct{}
	member  []mail
	frames  map[locks.NodeID][]string
	states  []mail
	onLock  func(from locks.NodeID, e locks.Epoch, frame []byte) // before it is noted
	onAsk   func(ctx context.Context, from peer.ID, q []byte) ([]byte, error)
	onMail  func(from peer.ID)
	asked   int // calls of gotLockNow
}

type mail struct {
	from string
	text string
}

type nodeOption func(*Options)

var testSecret = sync.OnceValue(func() Secret {
	s, err := ParseSecret(NewSecret())
	if err != nil {
		panic(err)
	}
	return s
})

// startNode starts a node on 127.0.0.1 and ends it with the test.
func startNode(tb testing.TB, opts ...nodeOption) *node {
	tb.Helper()
	id, err := NewIdentity()
	if err != nil {
		tb.Fatal(err)
	}
	n := &node{log: new(logBuffer), changed: make(chan struct{}), frames: make(map[locks.NodeID][]string)}
	o := Options{
		Identity: id,
		Secret:   testSecret(),
		Listen:   []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/0")},
		Log:      slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range opts {
		f(&o)
	}
	if n.host, err = NewHost(o); err != nil {
		tb.Fatal(err)
	}
	n.name = NodeID(n.host.ID(), 1)
	n.Transport = NewTransport(n.host, Handlers{Member: n.gotMember, Lock: n.gotLock, LockNow: n.gotLockNow, Sync: n.gotSync, Ask: n.gotAsk}, o.Log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	n.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	tb.Cleanup(func() {
		if err := n.stop(); err != nil {
			tb.Errorf("Run: %v", err)
		}
		if tb.Failed() {
			tb.Logf("log of %s:\n%s", n.name, n.log)
		}
	})
	select {
	case <-n.host.Ready():
	case err := <-done:
		done <- err
		tb.Fatal(err)
	}
	return n
}

func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) gotMember(from peer.ID, msg []byte) {
	n.mu.Lock()
	f := n.onMail
	n.mu.Unlock()
	if f != nil {
		f(from)
	}
	n.change(func() { n.member = append(n.member, mail{from.String(), string(msg)}) })
}

func (n *node) gotLock(from locks.NodeID, e locks.Epoch, frame []byte) {
	n.mu.Lock()
	f := n.onLock
	n.mu.Unlock()
	if f != nil {
		f(from, e, frame)
	}
	n.change(func() { n.frames[from] = append(n.frames[from], fmt.Sprintf("%d:%s", e, frame)) })
}

// gotLockNow takes two of three frames, unless one may block.
func (n *node) gotLockNow(from locks.NodeID, e locks.Epoch, frame []byte) bool {
	n.mu.Lock()
	n.asked++
	no := n.onLock != nil || n.asked%3 == 0
	n.mu.Unlock()
	if no {
		return false
	}
	n.gotLock(from, e, frame)
	return true
}

func (n *node) gotSync(from locks.NodeID, e locks.Epoch, state []byte) {
	n.change(func() { n.states = append(n.states, mail{string(from), fmt.Sprintf("%d:%s", e, state)}) })
}

func (n *node) gotAsk(ctx context.Context, from peer.ID, q []byte) ([]byte, error) {
	n.mu.Lock()
	f := n.onAsk
	n.mu.Unlock()
	if f == nil {
		return append([]byte("answer to "), q...), nil
	}
	return f(ctx, from, q)
}

// wait returns when cond, which is called with n.mu held, is true.
func (n *node) wait(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		n.mu.Lock()
		ok, changed := cond(), n.changed
		n.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			tb.Fatalf("%s: waited in vain for: %s", n.name, what)
		}
	}
}

// mails, framesOf and synced are what has come so far.
func (n *node) mails() []mail {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.member)
}

func (n *node) framesOf(from locks.NodeID) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.frames[from])
}

func (n *node) synced() []mail {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.states)
}

// poll is for states that nobody announces.
func poll(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	limit := time.Now().Add(30 * time.Second)
	for !cond() {
		if time.Now().After(limit) {
			tb.Fatalf("waited in vain for: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (n *node) info(tb testing.TB) peer.AddrInfo {
	tb.Helper()
	addrs, err := n.host.OwnAddrs()
	if err != nil {
		tb.Fatal(err)
	}
	return peer.AddrInfo{ID: n.host.ID(), Addrs: addrs}
}

// tell sends a message until it has come: on a busy machine one may get too old.
func (n *node) tell(tb testing.TB, to *node, msg string) {
	tb.Helper()
	poll(tb, fmt.Sprintf("a message of %s to %s", n.name, to.name), func() bool {
		n.SendMember(to.host.ID(), []byte(msg))
		return slices.Contains(to.mails(), mail{n.host.ID().String(), msg})
	})
}

func (n *node) connectedTo(p *node) bool {
	for _, i := range n.Peers() {
		if i.ID == p.host.ID() {
			return i.Connected
		}
	}
	return false
}

// connect connects each two nodes by one connection, which the first of them
// dials.
func connect(tb testing.TB, nodes ...*node) {
	tb.Helper()
	infos := make([]peer.AddrInfo, len(nodes))
	for i, n := range nodes {
		infos[i] = n.info(tb)
	}
	for i, n := range nodes {
		n.SetWanted(infos[i+1:])
	}
	for _, n := range nodes {
		for _, p := range nodes {
			if n != p {
				poll(tb, fmt.Sprintf("%s connected to %s", n.name, p.name), func() bool { return n.connectedTo(p) })
			}
		}
	}
}

// setView begins epoch e with the given members on all of them.
func setView(tb testing.TB, e locks.Epoch, nodes ...*node) {
	tb.Helper()
	var members []locks.NodeID
	for _, n := range nodes {
		members = append(members, n.name)
	}
	slices.Sort(members)
	for _, n := range nodes {
		if err := n.SetView(e, n.name, members); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestFourChannelsBetweenTwoHosts(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)

	a.tell(t, b, "hello")
	if got, want := b.mails()[0], (mail{a.host.ID().String(), "hello"}); got != want {
		t.Errorf("got message %v, want %v", got, want)
	}

	setView(t, 1, a, b)
	for i := range 100 {
		if err := a.Send(1, b.name, fmt.Appendf(nil, "frame %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	b.wait(t, "100 frames", func() bool { return len(b.frames[a.name]) >= 100 })
	for i, f := range b.framesOf(a.name) {
		if want := fmt.Sprintf("1:frame %d", i); f != want {
			t.Errorf("frame %d is %q, want %q", i, f, want)
		}
	}

	state := bytes.Repeat([]byte("state"), 1<<20)
	if err := a.SendSync(t.Context(), b.name, 1, state); err != nil {
		t.Fatal(err)
	}
	if want := (mail{string(a.name), "1:" + string(state)}); !slices.Equal(b.synced(), []mail{want}) {
		t.Errorf("got %d states, or not the one that was sent", len(b.synced()))
	}

	got, err := b.Ask(t.Context(), a.host.ID(), []byte("question"))
	if err != nil || string(got) != "answer to question" {
		t.Errorf("Ask: %q, %v", got, err)
	}
}
