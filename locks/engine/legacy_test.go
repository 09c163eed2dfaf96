package engine

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

// What is damaged, or of another version, is refused, and the engine is as new.
func TestADamagedLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		c.nodes["n1"].random(rand.New(rand.NewPCG(1, 1)))
		c.nodes["n0"].random(rand.New(rand.NewPCG(2, 2)))
		state, err := c.nodes["n0"].Bequeath()
		if err != nil {
			t.Fatal(err)
		}
		x := c.nodes[c.add("n0x")]
		for i := range state {
			if err := x.Inherit(state[:i]); err == nil {
				t.Fatalf("%d of %d bytes were taken", i, len(state))
			}
		}
		other := append([]byte{LegacyVersion + 1}, state[1:]...)
		if err := x.Inherit(other); err == nil {
			t.Error("another version was taken")
		}
		rnd := rand.New(rand.NewPCG(3, 3))
		for range 2000 { // whatever it says, it does not panic
			b := append([]byte(nil), state...)
			b[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(255))
			e := New(x.o)
			if e.Inherit(b) == nil {
				e.Freeze()
				e.State()
			}
		}
		if held, waits := x.Count(); held+waits > 0 || x.phase != outside {
			t.Errorf("%d are held, %d wait after damage", held, waits)
		}
		if err := x.Inherit(state); err != nil {
			t.Errorf("the whole: %v", err)
		}
	})
}
