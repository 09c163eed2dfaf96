package engine

import (
	"fmt"

	"dmxfs/locks"
	"dmxfs/locks/wire"
)

// Kinds of frames.
const (
	frameMachine = iota + 1 // key, algorithm, message of the machine
	frameQuery              // id, key, mode, range: who holds what conflicts?
	frameHolders            // id, conflicts
)

func appendKey(b []byte, k locks.Key) []byte {
	return wire.String(wire.Uint(b, k.Class), k.File)
}

func readKey(r *wire.Reader) locks.Key {
	c := locks.Class(r.Max(uint64(len(locks.Classes))))
	k := locks.Key{Class: c, File: r.String()}
	if r.Err() == nil && (c == 0 || k.File == "") {
		r.Failf("no class or no file")
	}
	return k
}

func machineFrame(en *entry, m locks.Message) []byte {
	b := make([]byte, 0, 96)
	b = append(b, frameMachine)
	b = appendKey(b, en.key)
	b = wire.String(b, en.alg.Name)
	return m.Append(b)
}

// frame is a decoded frame; which fields are set depends on the kind.
type frame struct {
	kind      byte
	key       locks.Key
	algorithm string
	msg       locks.Message
	id        uint64
	mode      locks.Mode
	rng       locks.Range
	conflicts []locks.Conflict
}

// maxConflicts bounds an answer to a query; the first ones are of interest.
const maxConflicts = 16

func decodeFrame(b []byte, algs map[string]*locks.Algorithm) (frame, error) {
	r := wire.NewReader(b)
	f := frame{kind: byte(r.Max(frameHolders))}
	switch f.kind {
	case frameMachine:
		f.key = readKey(r)
		f.algorithm = r.String()
		body := r.Rest()
		if err := r.End(); err != nil {
			return f, err
		}
		alg := algs[f.algorithm]
		if alg == nil {
			return f, fmt.Errorf("unknown algorithm %q", f.algorithm)
		}
		var err error
		f.msg, err = alg.Decode(body)
		return f, err
	case frameQuery:
		f.id, f.key, f.mode, f.rng = r.Uint(), readKey(r), r.Mode(), r.Range()
	case frameHolders:
		f.id = r.Uint()
		n := r.Len(4)
		if n > maxConflicts {
			r.Failf("%d conflicts", n)
			n = 0
		}
		for range n {
			f.conflicts = append(f.conflicts, locks.Conflict{Mode: r.Mode(), Range: r.Range(), PID: int(r.Max(1 << 31))})
		}
	default:
		if r.Err() == nil {
			r.Failf("unknown kind of frame")
		}
	}
	return f, r.End()
}

func queryFrame(q *query) []byte {
	b := wire.Uint([]byte{frameQuery}, q.id)
	b = appendKey(b, q.key)
	return wire.Range(wire.Uint(b, q.mode), q.rng)
}

func holdersFrame(id uint64, cs []locks.Conflict) []byte {
	cs = cs[:min(len(cs), maxConflicts)]
	b := wire.Uint(wire.Uint([]byte{frameHolders}, id), uint(len(cs)))
	for _, c := range cs {
		b = wire.Uint(wire.Range(wire.Uint(b, c.Mode), c.Range), uint(max(c.PID, 0)))
	}
	return b
}

// keyState is what one member says of one key.
type keyState struct {
	key       locks.Key
	algorithm string
	state     []byte
}

// encodeState is the State of every machine that has one.
// REQUIRES: e.mu held.
func (e *Engine) encodeState() []byte {
	var b []byte
	n := uint(0)
	for _, en := range e.sorted() {
		if s := en.machine.State(); s != nil {
			n++
			b = wire.String(wire.String(appendKey(b, en.key), en.alg.Name), s)
		}
	}
	return append(wire.Uint(nil, n), b...)
}

func decodeState(b []byte, algs map[string]*locks.Algorithm) ([]keyState, error) {
	r := wire.NewReader(b)
	n := r.Len(5)
	out := make([]keyState, 0, n)
	seen := map[locks.Key]bool{}
	for range n {
		ks := keyState{key: readKey(r), algorithm: r.String(), state: r.Bytes()}
		switch {
		case r.Err() != nil:
			return nil, r.Err()
		case algs[ks.algorithm] == nil:
			return nil, fmt.Errorf("unknown algorithm %q for %v", ks.algorithm, ks.key)
		case seen[ks.key]:
			return nil, fmt.Errorf("%v twice", ks.key)
		}
		seen[ks.key] = true
		out = append(out, ks)
	}
	return out, r.End()
}
