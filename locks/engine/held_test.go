package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/posix"
)

// heldList is a list, whatever is done with it.
func TestHeldIsAList(t *testing.T) {
	defer func(n int) { maxRun = n }(maxRun)
	maxRun = 8
	rapid.Check(t, func(t *rapid.T) {
		var h heldList
		var want []*ticket
		next := locks.TicketID(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			lo := rapid.IntRange(0, len(want)).Draw(t, "lo")
			hi := rapid.IntRange(lo, len(want)).Draw(t, "hi")
			var ts []*ticket
			if rapid.Bool().Draw(t, "cut") {
				if got := slices.Concat(h.cut(lo, hi)...); !slices.Equal(got, want[lo:hi]) {
					t.Fatalf("cut(%d, %d) of %d: %d pieces", lo, hi, len(want), len(got))
				}
			} else {
				for range rapid.IntRange(0, 20).Draw(t, "new") {
					next++
					m := locks.Mode(rapid.IntRange(1, 2).Draw(t, "mode"))
					ts = append(ts, &ticket{Piece: posix.Piece{Part: locks.Part{ID: next, Mode: m}}})
				}
				h.replace(lo, hi, ts...)
			}
			want = slices.Replace(slices.Clone(want), lo, hi, ts...)
			if got := slices.Collect(h.slice(0, h.len())); h.len() != len(want) || !slices.Equal(got, want) {
				t.Fatalf("%d pieces, want %d", h.len(), len(want))
			}
			n := 0
			for _, r := range h.runs {
				writes := 0
				for _, x := range r.ts {
					if x.Mode == locks.Write {
						writes++
					}
				}
				if n += len(r.ts); len(r.ts) == 0 || len(r.ts) > maxRun || writes != r.writes {
					t.Fatalf("a run of %d pieces, %d of them for writing, is said to have %d", len(r.ts), writes, r.writes)
				}
			}
			for i := range want {
				if h.at(i) != want[i] {
					t.Fatalf("at(%d) is another one", i)
				}
			}
			a := rapid.IntRange(0, len(want)).Draw(t, "a")
			b := rapid.IntRange(a, len(want)).Draw(t, "b")
			reads := slices.Collect(h.some(a, b, locks.Read))
			for _, x := range want[a:b] {
				if x.Mode == locks.Read && !slices.Contains(reads, x) {
					t.Fatalf("some(%d, %d) leaves out a piece for reading", a, b)
				}
			}
		}
	})
}
