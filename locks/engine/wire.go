package engine

import (
	"fmt"
	"math"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// Kinds of frames.
const (
	frameMachine   = iota + 1 // key, algorithm, message of the machine
	frameQuery                // id, key, mode, range: who holds what conflicts?
	frameHolders              // id, conflicts
	frameProbe                // round, path: a probe for deadlocks
	frameCycle                // 0, path: one was found, the victim is the receiver's
	frameConfirm              // id, path: is it still there?
	frameConfirmed            // id, yes or no
	frameLifted               // key: nothing is held any more from before its algorithm changed
	frameOther                // key, algorithm: it is served by this one here
	frameWant                 // a wish for delegations; see delegation.go
	frameRefuse               // the answer no
	frameDelegate             // more, token, keys: the answer yes, in one or several frames
	frameRecall               // it is wanted back
	frameReturn               // more, token, keys: and is given back
	frameDamaged              // key, index of who says so, the serial number it gave that: what was written under it is not all on the storage
	frameKinds     = iota
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
	path      []edge
	ok        bool
	more      bool
	keys      []locks.Key
	token     locks.Token
	origin    uint64
}

// maxConflicts bounds an answer to a query; the first ones are of interest.
const maxConflicts = 16

// decodeFrame reads a frame that was sent in an epoch of that many members.
func decodeFrame(b []byte, algs map[string]*locks.Algorithm, members int) (frame, error) {
	r := wire.NewReader(b)
	f := frame{kind: byte(r.Max(frameKinds))}
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
	case frameProbe, frameCycle, frameConfirm:
		f.id = r.Uint()
		f.path = readPath(r, members)
	case frameConfirmed:
		f.id, f.ok = r.Uint(), r.Bool()
	case frameLifted:
		f.key = readKey(r)
	case frameDamaged:
		f.key, f.origin, f.id = readKey(r), r.Max(uint64(members-1)), r.Uint()
	case frameOther:
		f.key, f.algorithm = readKey(r), r.String()
	case frameWant, frameRefuse, frameRecall:
	case frameDelegate, frameReturn:
		f.more, f.token = r.Bool(), locks.Token(r.Uint())
		for range r.Len(2) {
			f.keys = append(f.keys, readKey(r))
		}
	default:
		if r.Err() == nil {
			r.Failf("unknown kind of frame")
		}
	}
	return f, r.End()
}

func appendPath(b []byte, path []edge) []byte {
	b = wire.Uint(b, uint(len(path)))
	for _, h := range path {
		b = wire.Uint(wire.Uint(wire.Uint(b, uint(h.node)), h.wait), h.hold)
		b = appendKey(wire.Uint(b, uint64(h.since)), h.key)
		b = wire.Range(wire.Uint(b, h.mode), h.rng)
	}
	return b
}

func readPath(r *wire.Reader, members int) []edge {
	n := r.Len(9)
	if r.Err() == nil && (n == 0 || n > maxEdges) {
		r.Failf("a path of %d edges", n)
	}
	if r.Err() != nil {
		return nil
	}
	path := make([]edge, 0, n)
	for range n {
		path = append(path, edge{
			node: int(r.Max(uint64(members - 1))), wait: locks.TicketID(r.Uint()), hold: locks.TicketID(r.Uint()),
			since: int64(r.Max(math.MaxInt64)), key: readKey(r), mode: r.Mode(), rng: r.Range(),
		})
	}
	return path
}

func probeFrame(p probe) []byte { return appendPath(wire.Uint([]byte{frameProbe}, p.round), p.path) }

func cycleFrame(kind byte, id uint64, path []edge) []byte {
	return appendPath(wire.Uint([]byte{kind}, id), path)
}

func confirmedFrame(id uint64, ok bool) []byte {
	return wire.Bool(wire.Uint([]byte{frameConfirmed}, id), ok)
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

func liftedFrame(k locks.Key) []byte { return appendKey([]byte{frameLifted}, k) }

func damagedFrame(k locks.Key, origin int, serial uint64) []byte {
	return wire.Uint(wire.Uint(appendKey([]byte{frameDamaged}, k), uint(origin)), serial)
}

func otherFrame(k locks.Key, algorithm string) []byte {
	return wire.String(appendKey([]byte{frameOther}, k), algorithm)
}

// frameSize is how many bytes of names a frame that carries a part of a list
// grows to. Tests make it smaller.
var frameSize = 1 << 16

// keysFrames carry keys, in as many frames as it takes, one at least.
func keysFrames(kind byte, token locks.Token, keys []locks.Key) [][]byte {
	var frames [][]byte
	for first := true; first || len(keys) > 0; first = false {
		n := 0
		for size := 0; n < len(keys) && size < frameSize; n++ {
			size += len(keys[n].File)
		}
		frames = append(frames, keysFrame(kind, n < len(keys), token, keys[:n]))
		keys = keys[n:]
	}
	return frames
}

func keysFrame(kind byte, more bool, token locks.Token, keys []locks.Key) []byte {
	size := 32
	for _, k := range keys {
		size += len(k.File) + 4
	}
	b := append(make([]byte, 0, size), kind)
	b = wire.Uint(wire.Bool(b, more), uint64(token))
	b = wire.Uint(b, uint(len(keys)))
	for _, k := range keys {
		b = appendKey(b, k)
	}
	return b
}

// keyState is what one member says of one key.
type keyState struct {
	key       locks.Key
	path      string // empty if it is not known there
	algorithm string
	held      bool // something is held, which its machine knows of
	lifting   bool // something is held from before the algorithm changed
	state     []byte
}

// statement is the State of every machine that has one, and what else the others
// must know of, see change.go.
type statement struct {
	n uint
	b []byte
}

// add adds what is to be said of en: the State of its machine, and whether it
// holds something that others must know of, by the machine or beside it.
func (s *statement) add(en *entry, state []byte, held, lifting bool) {
	if state == nil && !held && !lifting {
		return
	}
	s.n++
	s.b = wire.String(wire.String(appendKey(s.b, en.key), en.path), en.alg.Name)
	s.b = wire.Bool(wire.Bool(s.b, held), lifting)
	s.b = wire.String(s.b, state)
}

func (s *statement) bytes() []byte { return append(wire.Uint(nil, s.n), s.b...) }

func decodeState(b []byte, algs map[string]*locks.Algorithm) ([]keyState, error) {
	r := wire.NewReader(b)
	n := r.Len(8)
	out := make([]keyState, 0, n)
	seen := map[locks.Key]bool{}
	for range n {
		ks := keyState{key: readKey(r), path: r.String(), algorithm: r.String(), held: r.Bool(), lifting: r.Bool(), state: r.Bytes()}
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
