package engine

import (
	"iter"
	"slices"
	"sort"

	"github.com/dmxfs/dmxfs/locks"
)

// heldList are the pieces that one owner has of a file, by offset; they never
// overlap. There may be 250,000. So they are kept in runs of at most maxRun, of
// which each knows how many of its pieces are for writing: a piece comes and goes
// anywhere without a copy of all the others, and pieces that are taken away all
// together go run by run.
type heldList struct {
	runs  []run
	n     int
	first [1]run // memory of runs, for an owner that has little, as nearly all
}

type run struct {
	ts     []*ticket
	writes int
}

// maxRun is how many pieces are in a run. Tests make it smaller.
var maxRun = 512

func (h *heldList) len() int { return h.n }

// find is the run of the i-th piece, and its place there; behind the last one it
// is the end of the last run.
func (h *heldList) find(i int) (r, at int) {
	for r = range h.runs {
		if n := len(h.runs[r].ts); i < n || r == len(h.runs)-1 {
			return r, i
		} else {
			i -= n
		}
	}
	return 0, 0
}

// at is the i-th piece.
func (h *heldList) at(i int) *ticket {
	r, at := h.find(i)
	return h.runs[r].ts[at]
}

// search is the first piece for which ok is true, as it is for all behind it; the
// number of pieces if there is none.
func (h *heldList) search(ok func(*ticket) bool) int {
	last := sort.Search(len(h.runs), func(r int) bool { ts := h.runs[r].ts; return ok(ts[len(ts)-1]) })
	if last == len(h.runs) {
		return h.n
	}
	before := 0
	for _, r := range h.runs[:last] {
		before += len(r.ts)
	}
	ts := h.runs[last].ts
	return before + sort.Search(len(ts), func(i int) bool { return ok(ts[i]) })
}

// slice yields the pieces at [lo, hi).
func (h *heldList) slice(lo, hi int) iter.Seq[*ticket] { return h.some(lo, hi, 0) }

// some is slice without runs of which no piece has mode m, if that is not 0.
func (h *heldList) some(lo, hi int, m locks.Mode) iter.Seq[*ticket] {
	return func(yield func(*ticket) bool) {
		if lo >= hi {
			return
		}
		left := hi - lo
		for r, at := h.find(lo); left > 0; r, at = r+1, 0 {
			x := &h.runs[r]
			ts := x.ts[at:min(at+left, len(x.ts))]
			left -= len(ts)
			if m == locks.Write && x.writes == 0 || m == locks.Read && x.writes == len(x.ts) {
				continue
			}
			for _, t := range ts {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// replace puts ts in the place of the pieces at [lo, hi).
func (h *heldList) replace(lo, hi int, ts ...*ticket) {
	if len(h.runs) == 0 {
		h.first[0] = run{}
		h.runs = h.first[:1]
	}
	r, at := h.find(lo)
	// From the runs behind the first one, what is in the way goes from their heads.
	for over := hi - lo - (len(h.runs[r].ts) - at); over > 0; {
		x := &h.runs[r+1]
		n := min(over, len(x.ts))
		for _, t := range x.ts[:n] {
			x.count(t, -1)
		}
		x.ts = slices.Delete(x.ts, 0, n)
		if over -= n; len(x.ts) == 0 {
			h.runs = slices.Delete(h.runs, r+1, r+2)
		}
	}
	x := &h.runs[r]
	end := min(at+hi-lo, len(x.ts))
	for _, t := range x.ts[at:end] {
		x.count(t, -1)
	}
	for _, t := range ts {
		x.count(t, 1)
	}
	x.ts = slices.Replace(x.ts, at, end, ts...)
	h.n += len(ts) - (hi - lo)
	h.part(r)
}

func (x *run) count(t *ticket, n int) {
	if t.Mode == locks.Write {
		x.writes += n
	}
}

// part cuts the r-th run if it is too long, and drops it if it is empty.
func (h *heldList) part(r int) {
	x := &h.runs[r]
	if len(x.ts) == 0 {
		h.runs = slices.Delete(h.runs, r, r+1)
		return
	}
	if len(x.ts) <= maxRun {
		return
	}
	// Where pieces come in ascending order, the lower part stays full.
	size := maxRun / 2
	if r == len(h.runs)-1 {
		size = maxRun - maxRun/8
	}
	var parts []run
	for ts := range slices.Chunk(x.ts, size) {
		p := run{ts: slices.Clone(ts)}
		for _, t := range ts {
			p.count(t, 1)
		}
		parts = append(parts, p)
	}
	h.runs = slices.Replace(h.runs, r, r+1, parts...)
}

// cut takes the pieces at [lo, hi) away and returns them, run by run.
func (h *heldList) cut(lo, hi int) (goes [][]*ticket) {
	for lo < hi {
		r, at := h.find(lo)
		x := &h.runs[r]
		n := min(hi-lo, len(x.ts)-at)
		if n == len(x.ts) {
			goes = append(goes, x.ts)
			h.n -= n
			if hi -= n; hi-lo >= maxRun { // the next ones go in the same way
				n = h.cutRuns(r+1, hi-lo, &goes)
				hi -= n
			}
			h.runs = slices.Delete(h.runs, r, r+1)
			continue
		}
		goes = append(goes, slices.Clone(x.ts[at:at+n]))
		h.replace(lo, lo+n)
		hi -= n
	}
	return goes
}

// cutRuns takes away the runs from the r-th on that have no more than most pieces
// together, and says how many these are.
func (h *heldList) cutRuns(r, most int, goes *[][]*ticket) (n int) {
	end := r
	for end < len(h.runs) && n+len(h.runs[end].ts) <= most {
		*goes = append(*goes, h.runs[end].ts)
		n += len(h.runs[end].ts)
		end++
	}
	h.runs = slices.Delete(h.runs, r, end)
	h.n -= n
	return n
}

// window is the pieces that overlap or touch r.
func (h *heldList) window(r locks.Range) (lo, hi int) {
	lo = h.search(func(t *ticket) bool { return t.Range.End >= r.Start })
	return lo, max(lo, h.search(func(t *ticket) bool { return t.Range.Start > r.End }))
}
