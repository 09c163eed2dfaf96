package p2p

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/locks"
)

func TestStatesOfAllSizes(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	setView(t, 1, a, b)
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{0, 1, chunk, chunk + 1, 1<<20 - 1, 1 << 20, 5<<20 + 17} {
		state := make([]byte, size)
		for i := range state {
			state[i] = byte(rnd.Uint32())
		}
		if err := a.SendSync(t.Context(), b.name, 1, state); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if last := b.synced()[len(b.synced())-1]; last.from != string(a.name) || last.text != "1:"+string(state) {
			t.Errorf("%d bytes: another state came, of %d bytes", size, len(last.text)-2)
		}
	}
	poll(t, "the budget to be whole again", func() bool { return b.syncs.budget.TryAcquire(syncBudget) })
}

// The state is sent when the sender has installed the view, which is usually
// before the receiver has.
func TestStateWaitsForTheEpochOfTheReceiver(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	members := []locks.NodeID{a.name, b.name}
	if err := a.SetView(3, a.name, members); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.SendSync(t.Context(), b.name, 3, []byte("state")) }()
	poll(t, "b to have the hello", func() bool {
		b.slots.mu.Lock()
		defer b.slots.mu.Unlock()
		return b.slots.all[slotKey{a.host.ID(), 1, 1, kindSync}] != nil
	})
	select {
	case err := <-done:
		t.Fatalf("SendSync did not wait: %v", err)
	default:
	}
	if err := b.SetView(3, b.name, members); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := len(b.synced()); n != 1 {
		t.Errorf("%d states came", n)
	}
}

func TestSendSyncEnds(t *testing.T) {
	a, b := startNode(t), startNode(t)
	members := []locks.NodeID{a.name, b.name}
	if err := a.SetView(3, a.name, members); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		epoch  locks.Epoch
		to     locks.NodeID
		during func(cancel context.CancelFunc)
		want   error
	}{
		"wrong epoch":              {2, b.name, nil, ErrEpoch},
		"not a member":             {3, a.name, nil, ErrNotMember},
		"cancelled, not connected": {3, b.name, func(cancel context.CancelFunc) { cancel() }, context.Canceled},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.during != nil {
				go tt.during(cancel)
			}
			if err := a.SendSync(ctx, tt.to, tt.epoch, nil); !errors.Is(err, tt.want) {
				t.Errorf("SendSync: %v, want %v", err, tt.want)
			}
		})
	}
	if err := a.SendSync(t.Context(), b.name, 3, make([]byte, MaxSync+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("a state that is too long: %v", err)
	}
	// b never reaches the epoch; a goes on to the next.
	connect(t, a, b)
	done := make(chan error, 1)
	go func() { done <- a.SendSync(t.Context(), b.name, 3, []byte("state")) }()
	poll(t, "b to have the hello", func() bool {
		b.slots.mu.Lock()
		defer b.slots.mu.Unlock()
		return b.slots.all[slotKey{a.host.ID(), 1, 1, kindSync}] != nil
	})
	if err := a.SetView(4, a.name, members); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, errEpochOver) {
		t.Errorf("SendSync when the epoch ends: %v", err)
	}
}

// A transfer that breaks is an error for the sender, and can be done again.
// What the handler gets is whole.
func TestStateWhoseConnectionBreaks(t *testing.T) {
	a, b := startNode(t), startNode(t)
	p, info := through(t, b)
	a.SetWanted([]peer.AddrInfo{info})
	setView(t, 1, a, b)
	state := bytes.Repeat([]byte("0123456789"), 3<<20)
	p.breakAfter(len(state) / 2)
	if err := a.SendSync(t.Context(), b.name, 1, state); err == nil {
		t.Error("SendSync: no error although the connection broke in the middle")
	}
	if len(b.synced()) != 0 {
		t.Error("half of a state was delivered")
	}
	if err := a.SendSync(t.Context(), b.name, 1, state); err != nil {
		t.Fatal(err)
	}
	if got := b.synced(); len(got) != 1 || got[0].text != "1:"+string(state) {
		t.Errorf("%d states came, or not the right one", len(got))
	}
}

// The epoch ends at the receiver while a state is on its way.
func TestStateOfAnEpochThatEndsIsDropped(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	setView(t, 1, a, b)
	s, err := a.host.Open(t.Context(), b.host.ID(), syncProtocol)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	err = greet(s, kindSync, func(b []byte) []byte {
		return append(hello{Epoch: 1, From: 1, To: 1}.append(b), 0, 0, 0, 0, 0, 0, 0, 5)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := await(s); err != nil {
		t.Fatal(err)
	}
	setView(t, 2, a, b)
	_, _ = s.Write([]byte("state"))
	if err := await(s); err == nil {
		t.Error("a state of epoch 1 was taken in epoch 2")
	}
	if got := b.synced(); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestReadStateTakesMemoryAsItComes(t *testing.T) {
	for _, size := range []int{0, 1, chunk, 1 << 20, 3<<20 + 5, 4 << 20} {
		want := bytes.Repeat([]byte{7}, size)
		got, err := readState(nopStream{}, bytes.NewReader(want), size)
		if err != nil || !bytes.Equal(got, want) || cap(got) > max(size, 1) {
			t.Errorf("%d bytes: %d bytes, capacity %d, %v", size, len(got), cap(got), err)
		}
	}
	// What was promised and does not come costs little.
	const times = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		if _, err := readState(nopStream{}, strings.NewReader("short"), MaxSync); err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) / times; took > 2<<20 {
		t.Errorf("a short state that was announced as %d bytes took %d bytes of memory", MaxSync, took)
	}
}

type nopStream struct{ Stream }

func (nopStream) SetReadDeadline(time.Time) error { return nil }
