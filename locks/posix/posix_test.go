package posix

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dmxfs/dmxfs/locks"
)

// model is the obvious version: the mode and the handle of each byte.
type model [24]struct {
	mode   locks.Mode
	handle locks.HandleID
}

func (m *model) set(p Piece) {
	for i := p.Range.Start; i < min(p.Range.End, uint64(len(m))); i++ {
		m[i].mode, m[i].handle = p.Mode, p.Handle
	}
}

func (m *model) clear(r locks.Range) {
	for i := r.Start; i < min(r.End, uint64(len(m))); i++ {
		m[i].mode, m[i].handle = 0, 0
	}
}

func TestPiecesAreWhatEachByteSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m model
		var held []Piece
		next := locks.TicketID(1)
		rng := rapid.Custom(func(t *rapid.T) locks.Range {
			s := rapid.Uint64Range(0, 22).Draw(t, "start")
			return locks.Range{Start: s, End: rapid.Uint64Range(s+1, 24).Draw(t, "end")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"place": func(t *rapid.T) {
				p := Piece{locks.Part{ID: next, Mode: locks.Mode(rapid.IntRange(1, 2).Draw(t, "mode")), Range: rng.Draw(t, "range")},
					locks.HandleID(rapid.IntRange(1, 2).Draw(t, "handle"))}
				next++
				before := append([]Piece(nil), held...)
				has := Has(slices.Values(held), p.Mode, p.Range)
				want := true
				for i := p.Range.Start; i < p.Range.End; i++ {
					want = want && m[i].mode >= p.Mode
				}
				if has != want {
					t.Fatalf("Has(%v, %v, %v) = %v", held, p.Mode, p.Range, has)
				}
				out := Place(held, p)
				for i := range before {
					if before[i] != held[i] {
						t.Fatalf("Place changed its input: %v -> %v", before, held)
					}
				}
				held = out
				m.set(p)
			},
			"clear": func(t *rapid.T) {
				r := rng.Draw(t, "range")
				held = Clear(held, r)
				m.clear(r)
			},
			"": func(t *rapid.T) {
				// IDs for the upper remnants, as the engine gives them.
				seen := map[locks.TicketID]bool{}
				for i := range held {
					if held[i].ID == 0 {
						held[i].ID = next
						next++
					}
					if seen[held[i].ID] {
						t.Fatalf("ID %d twice: %v", held[i].ID, held)
					}
					seen[held[i].ID] = true
				}
				var got model
				for i, p := range held {
					if p.Range.Empty() || i > 0 && held[i-1].Range.End > p.Range.Start {
						t.Fatalf("pieces empty or out of order: %v", held)
					}
					got.set(p)
				}
				if got != m {
					t.Fatalf("pieces %v\n got %v\nwant %v", held, got, m)
				}
			},
		})
	})
}

// fcntl(2) F_GETLK on Linux reports one lock where a program took two that
// touch with the same mode, whichever descriptor it used.
func TestExtentJoinsWhatTouches(t *testing.T) {
	held := []Piece{
		{locks.Part{ID: 1, Mode: locks.Read, Range: locks.Range{Start: 0, End: 10}}, 1},
		{locks.Part{ID: 2, Mode: locks.Read, Range: locks.Range{Start: 10, End: 20}}, 2},
		{locks.Part{ID: 3, Mode: locks.Write, Range: locks.Range{Start: 20, End: 30}}, 1},
		{locks.Part{ID: 4, Mode: locks.Write, Range: locks.Range{Start: 31, End: 40}}, 1},
	}
	want := []locks.Range{{Start: 0, End: 20}, {Start: 0, End: 20}, {Start: 20, End: 30}, {Start: 31, End: 40}}
	for i, w := range want {
		if got := extentOf(held, i); got != w {
			t.Errorf("Extent of piece %d = %v, want %v", i, got, w)
		}
	}
}

// Same mode and handle: the new lock swallows its neighbors, as in Linux.
func TestPlaceMergesNeighbors(t *testing.T) {
	held := Place(nil, Piece{locks.Part{ID: 1, Mode: locks.Write, Range: locks.Range{Start: 0, End: 10}}, 1})
	held = Place(held, Piece{locks.Part{ID: 2, Mode: locks.Write, Range: locks.Range{Start: 20, End: 30}}, 1})
	held = Place(held, Piece{locks.Part{ID: 3, Mode: locks.Write, Range: locks.Range{Start: 10, End: 20}}, 1})
	if len(held) != 1 || held[0].ID != 3 || held[0].Range != (locks.Range{Start: 0, End: 30}) {
		t.Errorf("held = %v", held)
	}
	// A hole leaves two; the upper one needs a new ID.
	held = Clear(held, locks.Range{Start: 5, End: 6})
	if len(held) != 2 || held[0].ID != 3 || held[1].ID != 0 {
		t.Errorf("after the hole: %v", held)
	}
}

func extentOf(held []Piece, i int) locks.Range {
	before := slices.Clone(held[:i])
	slices.Reverse(before)
	return Extent(held[i], slices.Values(before), slices.Values(held[i+1:]))
}
