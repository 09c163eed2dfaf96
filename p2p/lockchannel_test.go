package p2p

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/locks"
)

// inOrder checks that n got frames 0, 1, 2 … of an epoch from another node.
func (n *node) inOrder(tb testing.TB, from locks.NodeID, e locks.Epoch, count int) {
	tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	next := 0
	for _, f := range n.frames[from] {
		if !strings.HasPrefix(f, fmt.Sprintf("%d:", e)) {
			continue
		}
		if want := fmt.Sprintf("%d:%d", e, next); f != want {
			tb.Fatalf("%s got %q from %s, want %q", n.name, f, from, want)
		}
		next++
	}
	if next != count {
		tb.Errorf("%s got %d frames of epoch %d from %s, want %d", n.name, next, e, from, count)
	}
}

func sendNumber(tb testing.TB, from, to *node, e locks.Epoch, i int) {
	tb.Helper()
	if err := from.Send(e, to.name, fmt.Append(nil, i)); err != nil {
		tb.Fatal(err)
	}
}

func TestNothingIsLostWhenConnectionsBreak(t *testing.T) {
	t.Run("lanes", func(t *testing.T) { connectionsBreak(t, startNode(t), startNode(t)) })
	t.Run("streams", func(t *testing.T) { connectionsBreak(t, startNode(t, withoutLanes), startNode(t)) })
}

func connectionsBreak(t *testing.T, a, b *node) {
	p, info := through(t, b)
	a.SetWanted([]peer.AddrInfo{info})
	setView(t, 1, a, b)
	const count = 3000
	rnd := rand.New(rand.NewPCG(1, 2))
	breaks := 0
	for i := range count {
		sendNumber(t, a, b, 1, i)
		sendNumber(t, b, a, 1, i)
		// Break in the middle of traffic, when something has got through since
		// the last time.
		if rnd.IntN(100) == 0 {
			b.wait(t, "a frame after the last break", func() bool { return len(b.frames[a.name]) > 0 && p.connections() > breaks })
			p.breakAll()
			breaks = p.connections()
		}
	}
	for _, d := range [][2]*node{{a, b}, {b, a}} {
		d[1].wait(t, fmt.Sprintf("%d frames", count), func() bool { return len(d[1].frames[d[0].name]) >= count })
		d[1].inOrder(t, d[0].name, 1, count)
	}
	if now := b.nows(); (now > 0) != (!a.host.o.noLanes && !b.host.o.noLanes) {
		t.Errorf("%d frames were taken from the goroutine that reads", now)
	}
	if p.connections() < 10 {
		t.Errorf("only %d connections were made: too few broke", p.connections())
	}
}

func TestReceiverThatStandsStillForLong(t *testing.T) {
	t.Parallel()
	short := func(o *Options) { o.stall = time.Second }
	a, b := startNode(t, short), startNode(t, short)
	p, info := through(t, b)
	a.SetWanted([]peer.AddrInfo{info})
	setView(t, 1, a, b)
	sendNumber(t, a, b, 1, 0)
	b.wait(t, "the first frame", func() bool { return len(b.frames[a.name]) == 1 })
	p.stall(true)
	const count = 1000
	for i := 1; i < count; i++ {
		sendNumber(t, a, b, 1, i)
	}
	// The silence is noticed, and what waits is shown.
	start := time.Now()
	poll(t, "a to give the connection up", func() bool { return len(a.host.Conns(b.host.ID())) == 0 })
	t.Logf("noticed after %v", time.Since(start))
	poll(t, "the queue to be shown", func() bool {
		s := a.Peers()[0].Sessions[0]
		return !s.Up && s.Unacked >= count-1-ackFrames && s.Bytes > 0 && s.Err != nil
	})
	p.stall(false)
	b.wait(t, "all frames", func() bool { return len(b.frames[a.name]) >= count })
	b.inOrder(t, a.name, 1, count)
}

// A stall for less than a tenure ends no connection, whatever there is to say
// meanwhile.
func TestReceiverThatStandsStillForSeconds(t *testing.T) {
	t.Parallel()
	a, b := startNode(t), startNode(t)
	p, info := through(t, b)
	a.SetWanted([]peer.AddrInfo{info})
	setView(t, 1, a, b)
	sendNumber(t, a, b, 1, 0)
	b.wait(t, "the first frame", func() bool { return len(b.frames[a.name]) == 1 })
	before := a.host.Conns(b.host.ID())
	p.stall(true)
	start, count := time.Now(), 1
	poll(t, "four seconds to pass", func() bool {
		sendNumber(t, a, b, 1, count)
		count++
		return time.Since(start) > 4*time.Second
	})
	p.stall(false)
	b.wait(t, "all frames", func() bool { return len(b.frames[a.name]) >= count })
	b.inOrder(t, a.name, 1, count)
	if now := a.host.Conns(b.host.ID()); len(before) != 1 || len(now) != 1 || !now[0].Opened.Equal(before[0].Opened) {
		t.Errorf("the connections were %v, and are %v", before, now)
	}
}

// A handler that blocks holds back its sender, and nobody else.
func TestSlowHandlerHoldsBackOnlyItsSender(t *testing.T) {
	t.Run("lanes", func(t *testing.T) { slowHandler(t, startNode(t)) })
	t.Run("streams", func(t *testing.T) { slowHandler(t, startNode(t, withoutLanes)) })
}

func slowHandler(t *testing.T, b *node) {
	a, c := startNode(t), startNode(t)
	connect(t, a, b, c)
	setView(t, 1, a, b, c)
	gate := make(chan struct{})
	b.mu.Lock()
	b.onLock = func(from locks.NodeID, _ locks.Epoch, _ []byte) {
		if from == a.name {
			<-gate
		}
	}
	b.mu.Unlock()
	big := make([]byte, 10<<10)
	const count = 200 // 2 MB, far beyond the window
	for range count {
		if err := a.Send(1, b.name, big); err != nil {
			t.Fatal(err)
		}
	}
	poll(t, "a to be held back", func() bool {
		for _, p := range a.Peers() {
			if p.ID == b.host.ID() {
				return p.Sessions[0].Up && p.Sessions[0].Waiting > 100
			}
		}
		return false
	})
	// Other senders, and the other channels of the same sender, go on.
	sendNumber(t, c, b, 1, 0)
	b.wait(t, "a frame of another sender", func() bool { return len(b.frames[c.name]) == 1 })
	a.tell(t, b, "still here")
	if _, err := a.Ask(t.Context(), b.host.ID(), nil); err != nil {
		t.Error(err)
	}
	close(gate)
	b.wait(t, "the rest", func() bool { return len(b.frames[a.name]) == count })
	poll(t, "the queue to become short", func() bool {
		for _, p := range a.Peers() {
			if p.ID == b.host.ID() {
				return p.Sessions[0].Waiting == 0 && p.Sessions[0].Unacked < ackFrames
			}
		}
		return false
	})
}

func TestFramesOfANewerEpochWait(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	setView(t, 1, a, b)
	sendNumber(t, a, b, 1, 0)
	b.wait(t, "a frame of epoch 1", func() bool { return len(b.frames[a.name]) == 1 })
	members := []locks.NodeID{a.name, b.name}
	if err := a.SetView(2, a.name, members); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		sendNumber(t, a, b, 2, i)
	}
	poll(t, "b to have the hello of epoch 2", func() bool {
		b.slots.mu.Lock()
		defer b.slots.mu.Unlock()
		return len(b.slots.all) > 0 && b.epochs.view.Load().epoch == 1
	})
	b.mu.Lock()
	if n := len(b.frames[a.name]); n != 1 {
		t.Errorf("%d frames came before the epoch", n)
	}
	b.mu.Unlock()
	if err := b.SetView(2, b.name, members); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "the frames of epoch 2", func() bool { return len(b.frames[a.name]) == 11 })
	b.inOrder(t, a.name, 2, 10)
}

// Frames of an epoch that is over at the receiver never come, and those of the
// sender's next epoch do.
func TestFramesOfAnOlderEpochAreDropped(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	members := []locks.NodeID{a.name, b.name}
	if err := b.SetView(2, b.name, members); err != nil {
		t.Fatal(err)
	}
	if err := a.SetView(1, a.name, members); err != nil {
		t.Fatal(err)
	}
	sendNumber(t, a, b, 1, 0)
	poll(t, "a to be refused", func() bool {
		s := a.Peers()[0].Sessions[0]
		var r *refusal
		return errors.As(s.Err, &r) && r.Status == statusOldEpoch && r.Value == 2
	})
	if strings.Contains(b.log.String(), "WARN") {
		t.Error("what happens at every change of the view is logged as a warning")
	}
	if err := a.SetView(2, a.name, members); err != nil {
		t.Fatal(err)
	}
	sendNumber(t, a, b, 2, 0)
	b.wait(t, "a frame of epoch 2", func() bool { return len(b.frames[a.name]) > 0 })
	b.inOrder(t, a.name, 1, 0)
	b.inOrder(t, a.name, 2, 1)
}

// The receiver goes on to an epoch that the sender does not know: its stream
// ends, and it is told why.
func TestSenderThatIsLeftBehind(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	setView(t, 1, a, b)
	sendNumber(t, a, b, 1, 0)
	b.wait(t, "a frame", func() bool { return len(b.frames[a.name]) == 1 })
	if err := b.SetView(2, b.name, []locks.NodeID{b.name}); err != nil {
		t.Fatal(err)
	}
	poll(t, "a to be refused", func() bool {
		var r *refusal
		return errors.As(a.Peers()[0].Sessions[0].Err, &r) && r.Status == statusOldEpoch
	})
}

// What has been read of a stream when its epoch ends is not delivered.
func TestFramesInTheBufferEndWithTheEpoch(t *testing.T) {
	a, b := startNode(t), startNode(t)
	setView(t, 1, a, b)
	gate, entered := make(chan struct{}), make(chan struct{}, 10)
	b.mu.Lock()
	b.onLock = func(locks.NodeID, locks.Epoch, []byte) {
		entered <- struct{}{}
		<-gate
	}
	b.mu.Unlock()
	for i := range 10 {
		sendNumber(t, a, b, 1, i) // they wait for the connection, and go in one write
	}
	connect(t, a, b)
	<-entered
	setView(t, 2, a, b)
	close(gate)
	sendNumber(t, a, b, 2, 0)
	b.wait(t, "a frame of epoch 2", func() bool { return len(b.frames[a.name]) >= 2 })
	b.inOrder(t, a.name, 1, 1)
	b.inOrder(t, a.name, 2, 1)
}

// A session that waits for the receiver ends when its sender's epoch does, and
// when the connection does.
func TestWaitingSessionsEnd(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	waiting := func() bool {
		b.slots.mu.Lock()
		defer b.slots.mu.Unlock()
		return b.slots.all[slotKey{a.host.ID(), 1, 1, kindLock}] != nil
	}
	streams := func() (n int) {
		for _, c := range a.host.swarm.Conns() {
			n += len(c.GetStreams())
		}
		return n
	}
	if err := a.SetView(1, a.name, []locks.NodeID{a.name, b.name}); err != nil {
		t.Fatal(err)
	}
	poll(t, "b to have the hello of epoch 1", waiting)
	a.DropView()
	poll(t, "a to give the stream up", func() bool { return streams() == 0 })
	if err := a.SetView(2, a.name, []locks.NodeID{a.name, b.name}); err != nil {
		t.Fatal(err)
	}
	poll(t, "a new stream", func() bool { return streams() == 1 && waiting() })
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	poll(t, "b to give the session up", func() bool { return !waiting() })
}

func TestEpochsChangeUnderTraffic(t *testing.T) {
	nodes := []*node{startNode(t), startNode(t), startNode(t)}
	connect(t, nodes...)
	var late atomic.Int64
	for _, n := range nodes {
		n.mu.Lock()
		n.onLock = func(_ locks.NodeID, e locks.Epoch, _ []byte) {
			if e > n.epochs.view.Load().epoch {
				t.Errorf("%s got a frame of epoch %d too early", n.name, e)
			} else if e < n.epochs.view.Load().epoch {
				late.Add(1) // under way when the epoch ended
			}
		}
		n.mu.Unlock()
	}
	const epochs, count = 20, 200
	for e := locks.Epoch(1); e <= epochs; e++ {
		setView(t, e, nodes...)
		for i := range count {
			for _, from := range nodes {
				for _, to := range nodes {
					if from != to {
						sendNumber(t, from, to, e, i)
					}
				}
			}
		}
		if e == epochs {
			break
		}
		// Enough to be in the middle of it.
		nodes[0].wait(t, "some frames", func() bool { return len(nodes[0].frames[nodes[1].name]) > int(e) })
	}
	for _, to := range nodes {
		for _, from := range nodes {
			if from == to {
				continue
			}
			to.wait(t, "the last epoch", func() bool {
				f := to.frames[from.name]
				return len(f) > 0 && f[len(f)-1] == fmt.Sprintf("%d:%d", epochs, count-1)
			})
			to.inOrder(t, from.name, epochs, count)
			for e := locks.Epoch(1); e < epochs; e++ {
				to.mu.Lock()
				n := 0
				for _, f := range to.frames[from.name] {
					if strings.HasPrefix(f, fmt.Sprintf("%d:", e)) {
						n++
					}
				}
				to.mu.Unlock()
				to.inOrder(t, from.name, e, n) // a beginning of what was sent
			}
		}
	}
	t.Logf("%d frames were in the handler when their epoch ended", late.Load())
}

func TestNodesOutsideTheViewAreRefused(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	members := []locks.NodeID{a.name, b.name}
	// a believes that b is a member; b knows a view without a.
	if err := a.SetView(1, a.name, members); err != nil {
		t.Fatal(err)
	}
	if err := b.SetView(1, b.name, []locks.NodeID{b.name}); err != nil {
		t.Fatal(err)
	}
	sendNumber(t, a, b, 1, 0)
	wantLog(t, b, "WARN", "refused a stream of a peer", a.host.ID().String(), string(a.name)+" is not a member of epoch 1")
	wantLog(t, a, "WARN", "does not take messages", string(b.name), "is not a member of epoch 1")
	if err := a.SendSync(t.Context(), b.name, 1, []byte("x")); !errors.Is(err, ErrRefused) {
		t.Errorf("SendSync: %v", err)
	}
	b.inOrder(t, a.name, 1, 0)
}

func TestIncarnationsAreToldApart(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	second := NodeID(b.host.ID(), 2)
	// The view has two incarnations of b: 1, which is dead, and 2.
	members := []locks.NodeID{a.name, b.name, second}
	if err := a.SetView(1, a.name, members); err != nil {
		t.Fatal(err)
	}
	if err := b.SetView(1, second, members); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(1, b.name, []byte("to the dead")); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(1, second, []byte("0")); err != nil {
		t.Fatal(err)
	}
	if err := b.Send(1, b.name, []byte("to my former self")); err != nil {
		t.Fatal(err)
	}
	if err := b.Send(1, a.name, []byte("0")); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "the frame", func() bool { return len(b.frames[a.name]) > 0 })
	a.wait(t, "the frame", func() bool { return len(a.frames[second]) > 0 })
	wantLog(t, b, "WARN", "refused a stream", "incarnation 0000000000000001 is not running here")
	b.inOrder(t, a.name, 1, 1)
	a.inOrder(t, second, 1, 1)
	// Trying again and again to reach the dead one does not disturb the other.
	refusals := make(map[error]bool)
	poll(t, "three refusals", func() bool {
		for _, s := range a.Peers()[0].Sessions {
			var r *refusal
			if s.To == b.name && errors.As(s.Err, &r) {
				refusals[r] = true
			}
		}
		return len(refusals) == 3
	})
	if strings.Contains(b.log.String(), errReplaced.Error()) {
		t.Error("a stream to the dead incarnation has ended the one to the other")
	}
	var up, down int
	for _, s := range a.Peers()[0].Sessions {
		if s.Up {
			up++
		} else if s.To == b.name && s.Unacked == 1 {
			down++
		}
	}
	if up != 1 || down != 1 {
		t.Errorf("sessions: %+v", a.Peers()[0].Sessions)
	}
}

func TestViewsAndFramesAreChecked(t *testing.T) {
	a, b := startNode(t), startNode(t)
	members := []locks.NodeID{a.name, b.name}
	if err := a.SetView(5, a.name, members); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"present one is 5":   a.SetView(5, a.name, members),
		"present one is 5 ":  a.SetView(4, a.name, members),
		"not this node":      a.SetView(6, b.name, members),
		"not a member":       a.SetView(6, a.name, []locks.NodeID{b.name}),
		"no incarnation":     a.SetView(6, a.name, []locks.NodeID{a.name, "x"}),
		"present one is 5  ": a.Send(4, b.name, nil),
		"not a member ":      a.Send(5, a.name, nil),
		"limit is 1048576":   a.Send(5, b.name, make([]byte, MaxFrame+1)),
	} {
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("want %q, got %v", name, err)
		}
	}
	if err := a.Send(5, b.name, make([]byte, MaxFrame)); err != nil {
		t.Error(err)
	}
	a.DropView()
	if err := a.Send(5, b.name, nil); !errors.Is(err, ErrNotMember) {
		t.Errorf("Send without a view: %v", err)
	}
	if err := a.SetView(5, a.name, members); !errors.Is(err, ErrEpoch) {
		t.Errorf("SetView of an epoch that was left: %v", err)
	}
	if err := a.SetView(6, a.name, members); err != nil {
		t.Error(err)
	}
}
