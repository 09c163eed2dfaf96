package journal

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// The prefixes cover what they should and nothing else.
func TestPrefixes(t *testing.T) {
	covered := func(ps [][]byte, n uint64) int {
		c := 0
		for _, p := range ps {
			if bytes.HasPrefix(before(n).bytes()[:8], p) {
				c++
			}
		}
		return c
	}
	rapid.Check(t, func(t *rapid.T) {
		num := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 1<<20),
			rapid.Map(rapid.IntRange(0, 63), func(i int) uint64 { return 1 << i }),
			rapid.Just(uint64(1<<64-1)))
		from, to := num.Draw(t, "from"), num.Draw(t, "to")
		ps := prefixes(from, to)
		if len(ps) > 16*255 {
			t.Fatalf("%d prefixes", len(ps))
		}
		try := []uint64{0, from - 1, from, from + 1, from | 0xff, from | 0xffff, to - 1, to, to + 1, to &^ 0xff, to &^ 0xffff,
			1<<64 - 1, num.Draw(t, "n"), from + num.Draw(t, "d")/2}
		for _, n := range try {
			want := 0
			if from <= n && n < to {
				want = 1
			}
			if got := covered(ps, n); got != want {
				t.Fatalf("[%#x, %#x): %#x is covered %d times", from, to, n, got)
			}
		}
	})
}
