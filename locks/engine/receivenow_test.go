package engine

import (
	"bytes"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// receive has e receive a frame as the transport does, which lends it to ReceiveNow.
func receive(e *Engine, from locks.NodeID, epoch locks.Epoch, frame []byte) {
	lent := bytes.Clone(frame)
	if !e.ReceiveNow(from, epoch, lent) {
		e.Receive(from, epoch, frame)
	}
	for i := range lent {
		lent[i] = 0xff
	}
}

// What need not wait is done at once; of anything else nothing has happened.
func TestReceiveNow(t *testing.T) {
	b := loneEngine(t)
	frame := []byte{frameMachine, byte(fuzzFile.Class), 2, 'i', '7', 2, 'r', 'w'}
	for _, x := range []uint{1, 5, 1, 9, 1, 0, uint(locks.Write)} { // a REQUEST: ticket, round, timestamp, not over another one
		frame = wire.Uint(frame, x)
	}
	frame = wire.Range(frame, locks.Whole)
	frame = append(frame, 0, 0, 0) // no try, and its owner holds nothing
	if _, err := decodeFrame(frame, fuzzAlgorithms, 3); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name  string
		begin func()
		end   func()
		epoch locks.Epoch
		frame []byte
	}{
		{"nothing", nil, nil, 1, nil},
		{"a question", nil, nil, 1, queryFrame(&query{id: 1, key: fuzzKey, mode: locks.Write, rng: locks.Whole})},
		{"of another epoch", nil, nil, 2, frame},
		{"while the engine is busy", b.mu.Lock, b.mu.Unlock, 1, frame},
	} {
		if x.begin != nil {
			x.begin()
		}
		now := b.ReceiveNow("n1", x.epoch, x.frame)
		if x.end != nil {
			x.end()
		}
		if now || len(b.entries.all) > 0 || len(b.inbox.early) > 0 {
			t.Errorf("%s: %v, with %d entries and %d early frames", x.name, now, len(b.entries.all), len(b.inbox.early))
		}
	}
	if !b.ReceiveNow("n1", 1, frame) || b.entries.all[fuzzFile] == nil {
		t.Error("the message of a machine was not received")
	}
	b.Freeze()
	if b.ReceiveNow("n1", 1, frame) {
		t.Error("received by a frozen engine")
	}
}
