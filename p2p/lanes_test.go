package p2p

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// withoutLanes is a node of a version before there were lanes.
func withoutLanes(o *Options) { o.noLanes = true }

// nows is how often a node was offered a frame by the goroutine that reads.
func (n *node) nows() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// lanesPair is both ends of a connection, which ends with the test.
func lanesPair(t *testing.T, stall time.Duration) (a, b *lanes) {
	x, y := net.Pipe()
	t.Cleanup(func() { x.Close(); y.Close() })
	return newLanes(x, stall), newLanes(y, stall)
}

// What a multiplexer writes and what goes by lanes each arrive whole, in order and where
// they belong, however they mix.
func TestLanesBesideAMultiplexer(t *testing.T) {
	a, b := lanesPair(t, time.Minute)
	var got [2]bytes.Buffer
	ids := []uint32{
		b.receiver(func(f []byte) { got[0].Write(f) }),
		b.receiver(func(f []byte) { got[1].Write(f) }),
	}
	rnd := rand.New(rand.NewPCG(3, 1))
	some := func() []byte {
		x := make([]byte, 1+rnd.IntN(3000))
		for i := range x {
			x[i] = byte(rnd.Uint32())
		}
		return x
	}
	var writers sync.WaitGroup
	var want [2]bytes.Buffer
	for i, id := range ids {
		parts := make([][]byte, 300)
		for j := range parts {
			parts[j] = some()
			want[i].Write(parts[j])
		}
		writers.Go(func() {
			for _, p := range parts {
				if err := a.send(t.Context(), id, p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	stream := bytes.Repeat(some(), 1+2*longestRecord/1000) // longer than a record may be
	writers.Go(func() {
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), 1+len(stream)/3)
			if n, err := a.Write(rest[:n]); err != nil || n == 0 {
				t.Error(n, err)
				break
			}
			rest = rest[n:]
		}
	})
	go func() { writers.Wait(); a.Close() }()
	read, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(read, stream) {
		t.Errorf("the multiplexer reads %d bytes, %v; want the %d that were written", len(read), err, len(stream))
	}
	for i := range got {
		if !bytes.Equal(got[i].Bytes(), want[i].Bytes()) {
			t.Errorf("lane %d has %d bytes; want the %d that were sent", i, got[i].Len(), want[i].Len())
		}
	}
}

// recordOf is one as it comes over the connection.
func recordOf(head uint32, rest ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, head), rest...)
}

func TestBadRecords(t *testing.T) {
	for _, x := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, io.EOF},
		{"half a head", []byte{0, 0}, io.ErrUnexpectedEOF},
		{"a long one", recordOf(longestRecord + 1), ErrProtocol},
		{"a long one of a lane", recordOf(laneRecord | longestRecord + 1), ErrProtocol},
		{"the longest one of a lane that is not open", recordOf(laneRecord|longestRecord, make([]byte, longestRecord)...), io.EOF},
		{"half of a long one of a lane", recordOf(laneRecord|longestRecord, make([]byte, longestRecord-1)...), io.ErrUnexpectedEOF},
		{"no number of a lane", recordOf(laneRecord|3, 0, 0, 1), ErrProtocol},
		{"half of one of a lane", recordOf(laneRecord|9, 0, 0, 0, 1), io.ErrUnexpectedEOF},
		{"half of one", recordOf(9, 1, 2), io.EOF},
		{"of a lane that is not open", recordOf(laneRecord|5, 0, 0, 0, 7, 1), io.EOF},
	} {
		c, peer := net.Pipe()
		go func() { _, _ = peer.Write(x.b); peer.Close() }()
		l := newLanes(c, time.Minute)
		refused := false
		l.refused = func(error) { refused = true }
		l.receiver(func([]byte) { t.Errorf("%s: taken", x.name) })
		var err error
		for b := make([]byte, 8); err == nil; {
			_, err = l.Read(b)
		}
		if !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
		if refused != (x.want == ErrProtocol) {
			t.Errorf("%s: refused %v", x.name, refused)
		}
		c.Close()
	}
}

func FuzzLanes(f *testing.F) {
	f.Add(recordOf(3, 1, 2, 3))
	f.Add(append(recordOf(laneRecord|6, 0, 0, 0, 1, 8, 9), recordOf(1, 2)...))
	f.Add(recordOf(longestRecord + 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, peer := net.Pipe()
		go func() { _, _ = peer.Write(b); peer.Close() }()
		defer c.Close()
		l := newLanes(c, time.Minute)
		taken := 0
		l.receiver(func(f []byte) { taken += len(f) })
		read, err := io.ReadAll(l)
		if len(read)+taken > len(b) {
			t.Errorf("%d and %d bytes of %d: %v", len(read), taken, len(b), err)
		}
	})
}

// Who shuts a lane waits for what it takes at the moment, and then it takes nothing.
func TestShutLaneTakesNothing(t *testing.T) {
	a, b := lanesPair(t, time.Minute)
	entered, gate := make(chan struct{}), make(chan struct{})
	id := b.receiver(func([]byte) { entered <- struct{}{}; <-gate })
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = b.Read(make([]byte, 1)) }()
	if err := a.send(t.Context(), id, []byte("1")); err != nil {
		t.Fatal(err)
	}
	<-entered
	shut := make(chan struct{})
	go func() { defer close(shut); b.shut(id) }()
	poll(t, "the lane to be shut", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.open) == 0 })
	select {
	case <-shut:
		t.Error("it is shut while it takes something")
	default:
	}
	close(gate)
	<-shut
	if err := a.send(t.Context(), id, []byte("2")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// A peer that takes nothing does not hold a sender for longer than a connection may
// stall, and who waits behind it ends with its own context.
func TestLaneOfAPeerThatTakesNothing(t *testing.T) {
	a, _ := lanesPair(t, 200*time.Millisecond)
	first := make(chan error, 1)
	go func() { first <- a.send(t.Context(), 1, []byte("x")) }()
	poll(t, "the first to write", func() bool { return len(a.writing) == 0 })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	if err := a.send(ctx, 1, []byte("x")); err == nil || err.Error() != "over" {
		t.Errorf("who waits: %v", err)
	}
	if err := <-first; !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "takes nothing for 200ms") {
		t.Errorf("who writes: %v", err)
	}
	if err := a.send(t.Context(), 1, []byte("x")); err == nil {
		t.Error("the connection has not ended, and a record is not whole")
	}
}

// The multiplexer's time for each of its writes is not taken over, that for its last word is.
func TestWriteDeadlineOfTheMultiplexer(t *testing.T) {
	a, b := lanesPair(t, time.Minute)
	read := make(chan error, 1)
	go func() { _, err := io.ReadFull(b, make([]byte, 3)); read <- err }()
	if err := errors.Join(a.SetWriteDeadline(time.Now().Add(time.Minute)), a.SetWriteDeadline(time.Time{})); err != nil {
		t.Fatal(err)
	}
	if !a.deadline.IsZero() || a.ending.Load() {
		t.Error("a time to write is taken over")
	}
	if _, err := a.Write([]byte("one")); err != nil || <-read != nil {
		t.Fatal(err)
	}
	if err := a.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Write([]byte("last")); !errors.Is(err, os.ErrDeadlineExceeded) { // nobody reads
		t.Errorf("the last word: %v", err)
	}
}

// Nodes of a version before lanes, and of this one, understand one another.
func TestNodesWithAndWithoutLanes(t *testing.T) {
	old, new1, new2 := startNode(t, withoutLanes), startNode(t), startNode(t)
	connect(t, old, new1, new2)
	nodes := []*node{old, new1, new2}
	setView(t, 1, nodes...)
	const count = 500
	for i := range count {
		for _, from := range nodes {
			for _, to := range nodes {
				if from != to {
					sendNumber(t, from, to, 1, i)
				}
			}
		}
	}
	for _, from := range nodes {
		for _, to := range nodes {
			if from != to {
				to.wait(t, "all frames", func() bool { return len(to.frames[from.name]) == count })
				to.inOrder(t, from.name, 1, count)
			}
		}
	}
	if n := old.nows(); n != 0 {
		t.Errorf("%d frames came by a lane to a node that has none", n)
	}
	if new1.nows() == 0 || new2.nows() == 0 {
		t.Error("no frame came by a lane")
	}
}

// A panic of a handler ends the process, also in the goroutine of the multiplexer, which
// would go on without the connection.
func TestPanicInALaneEndsTheProcess(t *testing.T) {
	if os.Getenv("DMXFS_TEST_PANIC") != "" {
		a, b := lanesPair(t, time.Minute)
		id := b.receiver(func([]byte) { panic("of the handler") })
		go func() {
			defer func() { _ = recover() }() // as yamux does
			_, _ = b.Read(make([]byte, 1))
		}()
		_ = a.send(t.Context(), id, []byte("x"))
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestPanicInALaneEndsTheProcess$")
	cmd.Env = append(os.Environ(), "DMXFS_TEST_PANIC=yes")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: of the handler") || !strings.Contains(string(out), "lanes_test.go") {
		t.Errorf("%v %s", err, out)
	}
}

// On a slow network a long frame is no silence, and others have their turn beside it.
func TestALongFrameOnASlowNetwork(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]nodeOption{"lanes": func(*Options) {}, "streams": withoutLanes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			short := func(o *Options) { o.stall = 2 * time.Second }
			a, b := startNode(t, opt, short), startNode(t, short)
			p, info := through(t, b)
			p.pace = 300 << 10
			a.SetWanted([]peer.AddrInfo{info})
			setView(t, 1, a, b)
			sendNumber(t, a, b, 1, 0)
			b.wait(t, "the first frame", func() bool { return len(b.frames[a.name]) == 1 })
			if err := a.Send(1, b.name, make([]byte, MaxFrame)); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				a.tell(t, b, fmt.Sprint("beside it ", i))
			}
			if n := len(b.framesOf(a.name)); n != 1 {
				t.Errorf("%d frames have come, before what was said beside the long one", n)
			}
			b.wait(t, "the long frame", func() bool { return len(b.frames[a.name]) == 2 })
			if n := p.connections(); n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}
