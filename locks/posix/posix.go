package posix

import (
	"iter"

	"github.com/dmxfs/dmxfs/locks"
)

// Piece is a range that an owner holds in one mode.
type Piece struct {
	locks.Part
	Handle locks.HandleID
}

// Place is held with n in it: fcntl(2) F_SETLK with F_RDLCK or F_WRLCK.
// What n covers of other pieces is gone; what is left of them keeps its ID,
// but for the upper of two remnants of one piece, which has ID 0. Pieces that
// touch n with its mode and handle become part of it, under n's ID.
// held is not changed; the result shares no memory with it.
func Place(held []Piece, n Piece) []Piece {
	for _, h := range held {
		if h.Mode == n.Mode && h.Handle == n.Handle && touches(h.Range, n.Range) {
			n.Range.Start = min(n.Range.Start, h.Range.Start)
			n.Range.End = max(n.Range.End, h.Range.End)
		}
	}
	out := make([]Piece, 0, len(held)+2)
	placed := false
	for _, p := range Clear(held, n.Range) {
		if !placed && p.Range.Start > n.Range.Start {
			out, placed = append(out, n), true
		}
		out = append(out, p)
	}
	if !placed {
		out = append(out, n)
	}
	return out
}

// Clear is held without r: F_UNLCK. Remnants are as in [Place].
func Clear(held []Piece, r locks.Range) []Piece {
	out := make([]Piece, 0, len(held)+1)
	for _, p := range held {
		if !p.Range.Overlaps(r) {
			out = append(out, p)
			continue
		}
		if p.Range.Start < r.Start {
			low := p
			low.Range.End = r.Start
			out = append(out, low)
		}
		if r.End < p.Range.End {
			high := p
			if p.Range.Start < r.Start {
				high.ID = 0
			}
			high.Range.Start = r.End
			out = append(out, high)
		}
	}
	return out
}

// Has reports whether held has every byte of r in mode m or a stronger one, so
// that a lock of it needs nobody's leave.
func Has(held iter.Seq[Piece], m locks.Mode, r locks.Range) bool {
	for p := range held {
		if p.Range.End <= r.Start {
			continue
		}
		if p.Range.Start > r.Start || p.Mode < m {
			return r.Empty()
		}
		r.Start = p.Range.End
		if r.Empty() {
			return true
		}
	}
	return r.Empty()
}

// Extent is the range that F_GETLK reports for p: with those pieces before and
// behind it that touch and have its mode, as Linux has them in one lock. before
// yields the last one first.
func Extent(p Piece, before, behind iter.Seq[Piece]) locks.Range {
	r := p.Range
	for x := range before {
		if x.Mode != p.Mode || x.Range.End != r.Start {
			break
		}
		r.Start = x.Range.Start
	}
	for x := range behind {
		if x.Mode != p.Mode || x.Range.Start != r.End {
			break
		}
		r.End = x.Range.End
	}
	return r
}

func touches(a, b locks.Range) bool { return a.Start <= b.End && b.Start <= a.End }
