package engine

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/rw"
)

var (
	fuzzKey  = locks.Key{File: "i7", Class: locks.Posix}
	fuzzFile = locks.Key{File: "i7", Class: locks.Open}
)

// encode is decodeFrame backwards.
func (f frame) encode() []byte {
	switch f.kind {
	case frameMachine:
		return machineFrame(&entry{key: f.key, alg: &rw.Algorithm}, f.msg)
	case frameQuery:
		return queryFrame(&query{id: f.id, key: f.key, mode: f.mode, rng: f.rng})
	case frameHolders:
		return holdersFrame(f.id, f.conflicts)
	case frameProbe:
		return probeFrame(probe{f.id, f.path})
	case frameCycle, frameConfirm:
		return cycleFrame(f.kind, f.id, f.path)
	case frameLifted:
		return liftedFrame(f.key)
	case frameDamaged:
		return damagedFrame(f.key, int(f.origin), f.id)
	case frameOther:
		return otherFrame(f.key, f.algorithm)
	case frameConfirmed:
		return confirmedFrame(f.id, f.ok)
	case frameWant, frameRefuse, frameRecall:
		return []byte{f.kind}
	case frameDelegate, frameReturn:
		return keysFrame(f.kind, f.more, f.token, f.keys)
	}
	return nil
}

var fuzzAlgorithms = map[string]*locks.Algorithm{"rw": &rw.Algorithm}

// loneEngine is an engine whose two peers are silent.
func loneEngine(t *testing.T) *Engine {
	e := New(Options{
		Transport: nothing{}, Files: nothing{}, Recorder: nothing{}, Log: slog.New(slog.DiscardHandler),
		Algorithms: fuzzAlgorithms, Rule: func(string) string { return "rw" },
		Live: func(time.Duration) bool { return true }, Jitter: func() float64 { return 0.5 },
		Uniform: func() string { return "rw" }, Delegations: DelegationLimits{Quiet: 1},
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	begin(t, e, "n0", three...)
	return e
}

// someFrames has each kind of frame but that of a machine, which its algorithm
// writes.
func someFrames() []frame {
	path := []edge{
		{node: 0, wait: 1, hold: 2, since: 3, key: fuzzKey, mode: locks.Write, rng: locks.Whole},
		{node: 2, wait: 4, hold: 5, since: 6, key: fuzzKey, mode: locks.Read, rng: locks.Range{Start: 1, End: 9}},
	}
	return []frame{
		{kind: frameQuery, id: 1, key: fuzzKey, mode: locks.Write, rng: locks.Whole},
		{kind: frameHolders, id: 1, conflicts: []locks.Conflict{{Mode: locks.Read, Range: locks.Whole, PID: 12}}},
		{kind: frameProbe, id: 7, path: path},
		{kind: frameCycle, path: path},
		{kind: frameConfirm, id: 3, path: path},
		{kind: frameConfirmed, id: 3, ok: true},
		{kind: frameLifted, key: fuzzKey},
		{kind: frameOther, key: fuzzKey, algorithm: "rcv"},
		{kind: frameDamaged, key: fuzzKey, origin: 2, id: 5},
		{kind: frameWant}, {kind: frameRefuse}, {kind: frameRecall},
		{kind: frameDelegate, token: locks.TokenFloor(1) + 1, keys: []locks.Key{fuzzFile, fuzzKey}},
		{kind: frameReturn, more: true, token: locks.TokenFloor(1) + 1, keys: []locks.Key{fuzzFile}},
		{kind: frameReturn},
	}
}

// TestFrames: what encodes a frame and what decodes one know the same kinds.
func TestFrames(t *testing.T) {
	seen := map[byte]bool{frameMachine: true}
	for _, x := range someFrames() {
		seen[x.kind] = true
		b := x.encode()
		y, err := decodeFrame(b, fuzzAlgorithms, 3)
		if err != nil {
			t.Errorf("%+v as %x: %v", x, b, err)
		} else if again := y.encode(); y.kind != x.kind || string(again) != string(b) {
			t.Errorf("%+v as %x is %+v, and encoded again %x", x, b, y, again)
		}
	}
	for kind := byte(1); kind < frameKinds; kind++ {
		if !seen[kind] {
			t.Errorf("no frame of kind %d was tried", kind)
		}
	}
}

// FuzzFrame: no frame of a member panics; one that is accepted has one form
// only; and what it does leaves every machine as it must be.
func FuzzFrame(f *testing.F) {
	for _, x := range someFrames() {
		f.Add(x.encode())
	}
	f.Add([]byte{frameMachine, 3, 2, 'i', '7', 2, 'r', 'w', 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := decodeFrame(b, fuzzAlgorithms, 3)
		if err == nil {
			if again := x.encode(); string(again) != string(b) {
				t.Errorf("%x is %+v, and encoded again %x", b, x, again)
			}
		}
		// One that delegates to n1, and one that has asked.
		delegator, asker := loneEngine(t), loneEngine(t)
		delegator.Receive("n1", 1, []byte{frameWant})
		asker.mu.Lock()
		asker.borrowed.ask()
		asker.mu.Unlock()
		for _, e := range []*Engine{delegator, asker} {
			receive(e, "n1", 1, bytes.Clone(b))
			e.mu.Lock()
			for k, en := range e.entries.all {
				if err := en.machine.Check(); err != nil {
					t.Errorf("%v after %x: %v", k, b, err)
				}
			}
			e.mu.Unlock()
		}
	})
}

// FuzzState: no state of a member panics.
func FuzzState(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{1, 3, 2, 'i', '7', 0, 2, 'r', 'w', 0, 0, 3, 1, 0, 1})
	f.Add([]byte{1, 3, 2, 'i', '7', 1, 'f', 2, 'r', 'w', 1, 0, 0})
	f.Add([]byte{1, 3, 2, 'i', '7', 1, 'f', 2, 'r', 'w', 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		e := loneEngine(t)
		e.Freeze()
		own := e.State()
		e.Install(&locks.View{Epoch: 2, Self: "n0", Members: []locks.NodeID{"n0", "n1"}})
		if err := e.Sync("n0", 2, own); err != nil {
			t.Fatal(err)
		}
		if err := e.Sync("n1", 2, b); err != nil {
			return
		}
		e.Resume()
	})
}
