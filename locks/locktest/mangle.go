package locktest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

// A scene is a world in the middle of a run, for one message that does not
// belong there.
type scene struct {
	w     *world
	bytes [][]byte // messages of the run
}

// newScene runs a few dozen random steps.
func newScene(alg locks.Algorithm, opt Options, seed uint64) *scene {
	rng := rand.New(rand.NewPCG(seed, 11))
	s := &sim{plan: plan{nodes: 2 + rng.IntN(3), tickets: 3, owners: 2, bytes: 2, tries: 30, cancels: 2, expires: 3, epochs: rng.IntN(2), steps: 60}, rng: rng}
	s.w = newWorld(alg, opt, s.nodes)
	for range s.nodes {
		s.left = append(s.left, s.tickets)
	}
	c := &scene{w: s.w}
	for range rng.IntN(s.steps) {
		o, ok := s.choose()
		if !ok {
			break
		}
		if o.Kind == opDeliver {
			c.bytes = append(c.bytes, s.w.links[o.Node][o.To][o.At].bytes)
		}
		if err := s.do(o); err != nil {
			panic(fmt.Sprintf("locktest: seed %d: %v", seed, err))
		}
	}
	for _, links := range s.w.links {
		for _, l := range links {
			for _, p := range l {
				c.bytes = append(c.bytes, p.bytes)
			}
		}
	}
	return c
}

// receive gives b to the machine of one node as from another. Whatever it is,
// nothing panics; and what is refused has changed nothing.
func (c *scene) receive(alg locks.Algorithm, from, to int, b []byte) error {
	msg, err := alg.Decode(b)
	if err != nil {
		return nil
	}
	if again := msg.Append(nil); string(again) != string(b) {
		return fmt.Errorf("%x is %v, and encoded again %x", b, msg, again)
	}
	n := c.w.nodes[to%len(c.w.nodes)]
	if n.epoch == 0 {
		return nil // it has not joined yet
	}
	m := c.w.need(n)
	was := m.String()
	out := &c.w.turn
	out.Reset(true)
	err = m.Receive(c.w.nodes[from%len(c.w.nodes)].id, msg, out)
	if now := m.String(); err != nil && (now != was || len(out.Lines()) > 0) {
		return fmt.Errorf("%v was refused (%v), but the state was\n%s\nand is\n%s\nafter %q", msg, err, was, now, out.Lines())
	}
	_ = m.State()
	return nil
}

// mangled: messages with a byte changed, or to the wrong node, or at the wrong
// time.
func mangled(t *testing.T, alg locks.Algorithm, opt Options) {
	n := long.Or(uint64(1000), 4000)
	if testing.Short() || long.Race {
		n = 400
	}
	decoded := 0
	for seed := range n {
		rng := rand.New(rand.NewPCG(seed, 13))
		b := mangle(alg, opt, rng)
		if b == nil {
			continue
		}
		if _, err := alg.Decode(b); err == nil {
			decoded++
		}
		if err := newScene(alg, opt, seed).receive(alg, rng.IntN(4), rng.IntN(4), b); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if decoded == 0 {
		t.Error("no message that was mangled could be read")
	}
}

func mangle(alg locks.Algorithm, opt Options, rng *rand.Rand) []byte {
	real := newScene(alg, opt, rng.Uint64N(1000)).bytes
	if len(real) == 0 {
		return nil
	}
	b := append([]byte(nil), real[rng.IntN(len(real))]...)
	for range rng.IntN(3) {
		b[rng.IntN(len(b))] ^= 1 << rng.UintN(7)
	}
	return b
}

// Fuzz is for a fuzz test of an algorithm: what a peer says does not bring a
// machine down, and is refused without a trace or follows the protocol.
func Fuzz(f *testing.F, alg locks.Algorithm, opt Options) {
	for seed := range uint64(40) {
		for i, b := range newScene(alg, opt, seed).bytes {
			f.Add(seed, uint8(i), b)
		}
	}
	f.Fuzz(func(t *testing.T, seed uint64, who uint8, b []byte) {
		if err := newScene(alg, opt, seed%1000).receive(alg, int(who>>4), int(who&15), b); err != nil {
			t.Error(err)
		}
	})
}
