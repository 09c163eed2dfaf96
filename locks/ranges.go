package locks

import (
	"fmt"
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

// Add is s with the bytes of r.
func (s Ranges) Add(r Range) Ranges {
	if r.Empty() || s.Contains(r) {
		return s
	}
	i := s.search(r.Start, true)
	j := i
	for j < len(s) && s[j].Start <= r.End {
		r.Start, r.End = min(r.Start, s[j].Start), max(r.End, s[j].End)
		j++
	}
	out := make(Ranges, 0, len(s)-(j-i)+1)
	out = append(out, s[:i]...)
	out = append(out, r)
	return append(out, s[j:]...)
}

// Sub is s without the bytes of r.
func (s Ranges) Sub(r Range) Ranges {
	if !s.Overlaps(r) {
		return s
	}
	out := make(Ranges, 0, len(s)+1)
	for _, x := range s {
		if !x.Overlaps(r) {
			out = append(out, x)
			continue
		}
		if x.Start < r.Start {
			out = append(out, Range{x.Start, r.Start})
		}
		if r.End < x.End {
			out = append(out, Range{r.End, x.End})
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Union is the bytes that are in s or in o.
func (s Ranges) Union(o Ranges) Ranges {
	for _, r := range o {
		s = s.Add(r)
	}
	return s
}

// Minus is the bytes of s that are not in o.
func (s Ranges) Minus(o Ranges) Ranges {
	for _, r := range o {
		s = s.Sub(r)
	}
	return s
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
