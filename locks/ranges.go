package locks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MaxOffset is the end of the largest range: one more than the last byte that
// Linux can lock (OFFSET_MAX, 2^63-1).
const MaxOffset = uint64(1) << 63

// Range is the half-open range [Start, End) of bytes. It is empty when
// Start >= End.
type Range struct {
	Start, End uint64
}

// Whole covers every byte of a file, also those beyond its end.
var Whole = Range{0, MaxOffset}

// Empty reports whether r has no byte.
func (r Range) Empty() bool { return r.Start >= r.End }

// Overlaps reports whether r and o share a byte.
func (r Range) Overlaps(o Range) bool {
	return max(r.Start, o.Start) < min(r.End, o.End)
}

// Contains reports whether every byte of o is in r.
func (r Range) Contains(o Range) bool {
	return o.Empty() || r.Start <= o.Start && o.End <= r.End
}

// Intersect is what r and o share; it may be empty.
func (r Range) Intersect(o Range) Range {
	return Range{max(r.Start, o.Start), min(r.End, o.End)}
}

func (r Range) String() string {
	if r == Whole {
		return "[all]"
	}
	if r.End == MaxOffset {
		return fmt.Sprintf("[%d,eof)", r.Start)
	}
	return fmt.Sprintf("[%d,%d)", r.Start, r.End)
}

// Ranges is a set of bytes: ranges that are not empty, in order, with a gap
// between any two. The zero value is the empty set. Methods return a new set
// and leave the receiver as it is; the result may share memory with it.
type Ranges []Range

// RangesOf is the set of the bytes of r.
func RangesOf(r Range) Ranges {
	if r.Empty() {
		return nil
	}
	return Ranges{r}
}

// Empty reports whether s has no byte.
func (s Ranges) Empty() bool { return len(s) == 0 }

// search is the first place whose range ends after x (or at x, if touch).
func (s Ranges) search(x uint64, touch bool) int {
	lo, hi := 0, len(s)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if s[m].End < x || !touch && s[m].End == x {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// Overlaps reports whether a byte of r is in s.
func (s Ranges) Overlaps(r Range) bool {
	if r.Empty() {
		return false
	}
	i := s.search(r.Start, false)
	return i < len(s) && s[i].Start < r.End
}

// Contains reports whether all of r is in s.
func (s Ranges) Contains(r Range) bool {
	if r.Empty() {
		return true
	}
	i := s.search(r.Start, false)
	return i < len(s) && s[i].Contains(r)
}

// Next is the first range of s that ends behind x.
func (s Ranges) Next(x uint64) (r Range, ok bool) {
	if i := s.search(x, false); i < len(s) {
		return s[i], true
	}
	return Range{}, false
}

// Insert adds the bytes of r to s in place. It is for a set that shares its
// memory with no other; in ascending order it costs what append costs.
func (s *Ranges) Insert(r Range) {
	if r.Empty() {
		return
	}
	t := *s
	i := t.search(r.Start, true)
	j := i
	for j < len(t) && t[j].Start <= r.End {
		r.Start, r.End = min(r.Start, t[j].Start), max(r.End, t[j].End)
		j++
	}
	*s = slices.Replace(t, i, j, r)
}

// Remove takes the bytes of r out of s in place, as Insert adds them.
func (s *Ranges) Remove(r Range) {
	if r.Empty() {
		return
	}
	t := *s
	i := t.search(r.Start, false)
	j := i
	var rest [2]Range
	n := 0
	for j < len(t) && t[j].Start < r.End {
		if t[j].Start < r.Start {
			rest[n] = Range{t[j].Start, r.Start}
			n++
		}
		if r.End < t[j].End {
			rest[n] = Range{r.End, t[j].End}
			n++
		}
		j++
	}
	// What is shorter moves, before or behind: whoever gives a set up range by
	// range, from either end, moves nothing.
	if gone := j - i - n; gone > 0 && i < len(t)-j {
		copy(t[gone:], t[:i])
		copy(t[gone+i:], rest[:n])
		*s = t[gone:]
		return
	}
	*s = slices.Replace(t, i, j, rest[:n]...)
}

// Add is s with the bytes of r.
func (s Ranges) Add(r Range) Ranges {
	if s.Contains(r) {
		return s
	}
	out := append(make(Ranges, 0, len(s)+1), s...)
	out.Insert(r)
	return out
}

// Sub is s without the bytes of r.
func (s Ranges) Sub(r Range) Ranges {
	if !s.Overlaps(r) {
		return s
	}
	out := append(make(Ranges, 0, len(s)+1), s...)
	out.Remove(r)
	if len(out) == 0 {
		return nil
	}
	return out
}

// Union is the bytes that are in s or in o.
func (s Ranges) Union(o Ranges) Ranges {
	switch {
	case len(o) == 0:
		return s
	case len(s) == 0:
		return o
	case len(o) == 1:
		return s.Add(o[0])
	}
	return Collect(append(slices.Clip(s), o...))
}

// Minus is the bytes of s that are not in o.
func (s Ranges) Minus(o Ranges) Ranges {
	switch {
	case len(s) == 0 || len(o) == 0:
		return s
	case len(o) == 1:
		return s.Sub(o[0])
	}
	var out Ranges
	i := 0
	for _, r := range s {
		for i < len(o) && o[i].End <= r.Start {
			i++
		}
		// What is cut out of r begins at o[i]; the last piece of o that
		// touches r may reach into the next range of s, so i stays there.
		for j := i; j < len(o) && o[j].Start < r.End; j++ {
			if r.Start < o[j].Start {
				out = append(out, Range{r.Start, o[j].Start})
			}
			r.Start = o[j].End
			i = j
		}
		if !r.Empty() {
			out = append(out, r)
		}
	}
	return out
}

// Less is Minus, at less cost where o is the beginning of s. The result shares
// memory with s.
func (s Ranges) Less(o Ranges) Ranges {
	if n := len(o); n <= len(s) && slices.Equal(s[:n], o) {
		return s[n:]
	}
	return s.Minus(o)
}

// Includes reports whether every byte of o is in s.
func (s Ranges) Includes(o Ranges) bool {
	for _, r := range o {
		if !s.Contains(r) {
			return false
		}
	}
	return true
}

// Meets reports whether s and o share a byte.
func (s Ranges) Meets(o Ranges) bool {
	if len(s) > len(o) {
		s, o = o, s
	}
	for _, r := range s {
		if o.Overlaps(r) {
			return true
		}
	}
	return false
}

// Collect is the set of the bytes of all ranges in rs, which it sorts and
// whose memory it takes.
func Collect(rs []Range) Ranges {
	rs = slices.DeleteFunc(rs, Range.Empty)
	slices.SortFunc(rs, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && r.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, r.End)
		} else {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return Ranges(out)
}

// Apart reports whether no two of rs, which it sorts, share a byte.
func Apart(rs []Range) bool {
	slices.SortFunc(rs, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	for i := range rs {
		if i > 0 && rs[i-1].End > rs[i].Start {
			return false
		}
	}
	return true
}

// Clip is the bytes of s that are in r.
func (s Ranges) Clip(r Range) Ranges {
	var out Ranges
	for _, x := range s {
		if c := x.Intersect(r); !c.Empty() {
			out = append(out, c)
		}
	}
	return out
}

// Valid reports whether s is in the form that its methods rely on; sets that
// come from a peer are checked with it.
func (s Ranges) Valid() bool {
	for i, r := range s {
		if r.Empty() || r.End > MaxOffset || i > 0 && s[i-1].End >= r.Start {
			return false
		}
	}
	return true
}

func (s Ranges) String() string {
	if len(s) == 0 {
		return "{}"
	}
	var b strings.Builder
	for _, r := range s {
		b.WriteString(r.String())
	}
	return b.String()
}
