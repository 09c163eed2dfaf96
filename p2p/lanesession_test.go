package p2p

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
)

// laneTo begins a session of its own from n to the other node, as a member that does what
// it likes.
func laneTo(t *testing.T, n, to *node, epoch locks.Epoch) (Stream, *laneWriter) {
	t.Helper()
	s, err := n.host.Open(t.Context(), to.host.ID(), lockProtocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Reset() })
	h := hello{Epoch: uint64(epoch), From: 1, To: 1}
	if err := greet(s, kindLock, h.append); err != nil {
		t.Fatal(err)
	}
	if v, err := readVerdict(s); err != nil || v.Status != statusOK {
		t.Fatal(v, err)
	}
	w, err := readLane(t.Context(), lanesOf(s), s)
	if err != nil {
		t.Fatal(err)
	}
	return s, w
}

// What a member sends against the protocol ends its session, and is said; nothing else of
// it is delivered, and it may begin anew.
func TestLaneAgainstTheProtocol(t *testing.T) {
	frames := func(size int, seqs ...uint64) (b []byte) {
		for _, n := range seqs {
			b = appendFrame(b, n, bytes.Repeat([]byte("x"), size))
		}
		return b
	}
	for _, x := range []struct {
		name, log string
		send      func(Stream, *laneWriter) error
	}{
		{"a gap", "frame 3 follows on 1", func(_ Stream, w *laneWriter) error { _, err := w.Write(frames(1, 1, 3)); return err }},
		{"a long frame", "a frame of 16777216 bytes", func(_ Stream, w *laneWriter) error {
			_, err := w.Write(append(frames(5, 1), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2))
			return err
		}},
		{"bytes in the stream", "bytes in the stream of a session", func(s Stream, _ *laneWriter) error { _, err := s.Write([]byte("x")); return err }},
		{"too much", "wait to be taken", func(_ Stream, w *laneWriter) error {
			for i := range uint64(mostLater>>15 + 2) { // past the window
				if err := w.lanes.send(t.Context(), w.id, frames(32<<10, i+1)); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			a, b := startNode(t), startNode(t)
			connect(t, a, b)
			gate := make(chan struct{})
			if x.name == "too much" {
				b.mu.Lock()
				b.onLock = func(locks.NodeID, locks.Epoch, []byte) { <-gate }
				b.mu.Unlock()
			}
			if err := b.SetView(1, b.name, sorted(a.name, b.name)); err != nil {
				t.Fatal(err)
			}
			s, w := laneTo(t, a, b, 1)
			if err := x.send(s, w); err != nil {
				t.Fatal(err)
			}
			if x.name == "too much" {
				a.tell(t, b, "the connection goes on")
			}
			close(gate)
			wantLog(t, b, "WARN", "refused a stream of a peer", x.log)
			if n := len(b.framesOf(a.name)); n > 1 && x.name != "too much" {
				t.Errorf("%d frames were delivered", n)
			}
			poll(t, "the stream to end", func() bool { _, err := s.Read(make([]byte, 64)); return err != nil })
			laneTo(t, a, b, 1)
		})
	}
}

func sorted(ids ...locks.NodeID) []locks.NodeID { slices.Sort(ids); return ids }

// Frames of any size reach a handler that stands still again and again until its sender is
// held back.
func TestHandlerThatHoldsBackAgainAndAgain(t *testing.T) {
	for name, opt := range map[string]nodeOption{"lanes": func(*Options) {}, "streams": withoutLanes} {
		t.Run(name, func(t *testing.T) {
			a, b := startNode(t, opt), startNode(t)
			connect(t, a, b)
			var sizes []int
			sum := 0
			for rnd := rand.New(rand.NewPCG(5, 8)); sum < 16<<20; sum += sizes[len(sizes)-1] {
				sizes = append(sizes, []int{rnd.IntN(100), rnd.IntN(10 << 10), rnd.IntN(MaxFrame + 1)}[min(rnd.IntN(30), 29)/14])
			}
			got, bytes := 0, 0
			b.mu.Lock()
			b.onLock = func(_ locks.NodeID, _ locks.Epoch, f []byte) {
				if len(f) != sizes[got] {
					t.Errorf("frame %d has %d bytes, want %d", got, len(f), sizes[got])
				}
				got++
				bytes += len(f)
				if got%30 == 0 && bytes < sum-4*laneWindow-4*MaxFrame {
					poll(t, "the sender to be held back", func() bool { return a.Peers()[0].Sessions[0].Waiting > 0 })
				}
			}
			b.mu.Unlock()
			setView(t, 1, a, b)
			for _, n := range sizes {
				if err := a.Send(1, b.name, make([]byte, n)); err != nil {
					t.Fatal(err)
				}
			}
			b.wait(t, "all frames", func() bool { return len(b.frames[a.name]) == len(sizes) })
			if log := b.log.String(); strings.Contains(log, "WARN") {
				t.Error(log)
			}
		})
	}
}

// What a receiver says that it has taken cannot be more than was written, or less than before.
func TestTakenOfALane(t *testing.T) {
	w := &laneWriter{more: make(chan struct{}, 1)}
	w.written.Store(1000)
	for _, n := range []uint64{1001, ^uint64(0)} {
		if w.setTaken(n) == nil {
			t.Errorf("%d of 1000 is accepted", n)
		}
	}
	if err := w.setTaken(600); err != nil || w.taken.Load() != 600 || len(w.more) != 1 {
		t.Errorf("600 of 1000: %v", err)
	}
	if err := w.setTaken(599); err == nil {
		t.Error("less than before is accepted")
	}
	if err := w.setTaken(1000); err != nil {
		t.Error(err)
	}
}

// Whatever comes by a lane, in whatever parts: what is delivered are the frames that are
// next, in order, until one is against the protocol.
func FuzzLaneReceiver(f *testing.F) {
	two := appendFrame(appendFrame(nil, 1, []byte("one")), 2, nil)
	f.Add(two, uint8(3), uint8(2))
	f.Add(append(two, appendFrame(nil, 2, []byte("again"))...), uint8(200), uint8(1))
	f.Add(appendFrame(two, 4, []byte("a gap")), uint8(7), uint8(3))
	f.Add(append(two, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3), uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, part, every uint8) {
		var want, got []string
		var count recvCount
		for br := bufio.NewReader(bytes.NewReader(b)); ; {
			seq, frame, err := readFrame(br)
			if err != nil {
				break
			}
			deliver, err := count.accept(seq)
			if err != nil {
				break
			}
			if deliver {
				count.delivered(0)
				want = append(want, string(frame))
			}
		}
		handle := func(_ locks.NodeID, _ locks.Epoch, frame []byte) { got = append(got, string(frame)) }
		asked, fed := 0, 0
		var r *laneReceiver
		c := &lockChannel{handle: handle, handleNow: func(from locks.NodeID, e locks.Epoch, frame []byte) bool {
			if r.arrived != uint64(fed) {
				t.Errorf("%d bytes are counted as come, where what was delivered before are %d", r.arrived, fed)
			}
			if asked++; every > 0 && asked%int(every) == 0 {
				return false
			}
			handle(from, e, frame)
			return true
		}}
		r = &laneReceiver{c: c, v: &view{ctx: t.Context()}, in: &inSession{}, wake: make(chan struct{}, 1)}
		for rest := b; len(rest) > 0; {
			n := min(len(rest), 1+int(part))
			r.take(bytes.Clone(rest[:n]))
			rest = rest[n:]
			fed += n
			if x, is, _, err := r.next(); err == nil && is {
				r.deliver(x, r.handle)
				r.delivered(x)
			}
		}
		for len(r.later) > 0 && r.failed == nil {
			x, _, _, _ := r.next()
			r.deliver(x, r.handle)
			r.delivered(x)
		}
		// One that waits when the session fails is not delivered any more.
		if len(got) > len(want) || r.failed == nil && len(got) < len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Errorf("delivered %q, want %q; %v", got, want, r.failed)
		}
		if r.failed == nil && (r.busy || r.bytes != 0 || r.arrived != uint64(len(b))) {
			t.Errorf("busy %v, %d bytes wait, %d of %d have come", r.busy, r.bytes, r.arrived, len(b))
		}
	})
}
