package locks

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The model of a set is a truth value per byte of a small file, and one more
// for all that is behind it.
const modelBytes = 12

type model [modelBytes + 1]bool

func toModel(s Ranges) (m model) {
	for i := range m {
		m[i] = s.Contains(byteRange(i))
	}
	return m
}

// byteRange is the i-th byte; the last stands for all behind it.
func byteRange(i int) Range {
	if i == modelBytes {
		return Range{modelBytes, MaxOffset}
	}
	return Range{uint64(i), uint64(i) + 1}
}

func (m model) combine(o model, f func(a, b bool) bool) (out model) {
	for i := range m {
		out[i] = f(m[i], o[i])
	}
	return out
}

func and(a, b bool) bool    { return a && b }
func or(a, b bool) bool     { return a || b }
func andNot(a, b bool) bool { return a && !b }

func anyRange() *rapid.Generator[Range] {
	return rapid.Custom(func(t *rapid.T) Range {
		from := rapid.IntRange(0, modelBytes).Draw(t, "from")
		to := rapid.IntRange(from, modelBytes).Draw(t, "to")
		if rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
			return Range{byteRange(to).Start, byteRange(from).Start}
		}
		return Range{byteRange(from).Start, byteRange(to).End}
	})
}

func anyRanges() *rapid.Generator[Ranges] {
	return rapid.Custom(func(t *rapid.T) Ranges {
		return Collect(rapid.SliceOfN(anyRange(), 0, 6).Draw(t, "ranges"))
	})
}

func TestRangesAgreeWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyRanges().Draw(t, "a"), anyRanges().Draw(t, "b")
		r := anyRange().Draw(t, "r")
		ma, mb, mr := toModel(a), toModel(b), toModel(RangesOf(r))
		wasA, wasB := slices.Clone(a), slices.Clone(b)

		sets := []struct {
			name string
			got  Ranges
			want model
		}{
			{"Add", a.Add(r), ma.combine(mr, or)},
			{"Sub", a.Sub(r), ma.combine(mr, andNot)},
			{"Union", a.Union(b), ma.combine(mb, or)},
			{"Minus", a.Minus(b), ma.combine(mb, andNot)},
			{"Clip", a.Clip(r), ma.combine(mr, and)},
			{"Collect", Collect(slices.Concat([]Range(b), []Range{r}, []Range(a))), ma.combine(mb, or).combine(mr, or)},
		}
		for _, s := range sets {
			if !s.got.Valid() || toModel(s.got) != s.want {
				t.Fatalf("%s is %v, want %v", s.name, s.got, s.want)
			}
		}
		if !slices.Equal(a, wasA) || !slices.Equal(b, wasB) {
			t.Fatalf("%v, %v changed to %v, %v", wasA, wasB, a, b)
		}

		truths := []struct {
			name      string
			got, want bool
		}{
			{"Overlaps", a.Overlaps(r), ma.combine(mr, and) != model{}},
			{"Contains", a.Contains(r), mr.combine(ma, andNot) == model{}},
			{"Meets", a.Meets(b), ma.combine(mb, and) != model{}},
			{"Includes", a.Includes(b), mb.combine(ma, andNot) == model{}},
			{"Empty", a.Empty(), ma == model{}},
		}
		for _, s := range truths {
			if s.got != s.want {
				t.Fatalf("%s is %v", s.name, s.got)
			}
		}
	})
}

func TestRangesInPlaceAgreeWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Ranges
		var m model
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				r := anyRange().Draw(t, "r")
				s.Insert(r)
				m = m.combine(toModel(RangesOf(r)), or)
			},
			"remove": func(t *rapid.T) {
				r := anyRange().Draw(t, "r")
				s.Remove(r)
				m = m.combine(toModel(RangesOf(r)), andNot)
			},
			"": func(t *rapid.T) {
				if !s.Valid() || toModel(s) != m {
					t.Fatalf("%v, want %v", s, m)
				}
			},
		})
	})
}

func TestRangePredicates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyRange().Draw(t, "a"), anyRange().Draw(t, "b")
		sa, sb := RangesOf(a), RangesOf(b)
		if a.Empty() != sa.Empty() || a.Overlaps(b) != sa.Overlaps(b) || b.Overlaps(a) != a.Overlaps(b) ||
			a.Contains(b) != sa.Contains(b) || !slices.Equal(RangesOf(a.Intersect(b)), sa.Clip(b)) || !sb.Contains(b) {
			t.Fatalf("%v and %v", a, b)
		}
	})
}

func TestMalformedRangesAreNotValid(t *testing.T) {
	for _, s := range []Ranges{
		{{1, 1}}, {{2, 1}}, {{0, 2}, {2, 3}}, {{0, 3}, {2, 4}}, {{4, 5}, {0, 1}}, {{0, MaxOffset + 1}},
	} {
		if s.Valid() {
			t.Errorf("%v is valid", []Range(s))
		}
	}
}

func TestRangeText(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{Whole.String(), "[all]"},
		{Range{3, MaxOffset}.String(), "[3,eof)"},
		{Range{3, 5}.String(), "[3,5)"},
		{Ranges{{3, 5}, {7, 8}}.String(), "[3,5)[7,8)"},
		{Ranges(nil).String(), "{}"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// Many ranges must not make a set slow: 100,000 record locks on one file.
func BenchmarkRanges(b *testing.B) {
	const n = 100_000
	var full Ranges
	for i := range uint64(n) {
		full.Insert(Range{4 * i, 4*i + 2})
	}
	middle := Range{2 * n, 2*n + 1}
	b.Run("op=InsertRemove", func(b *testing.B) {
		s := slices.Clone(full)
		for b.Loop() {
			s.Remove(middle)
			s.Insert(middle)
		}
	})
	b.Run("op=Contains", func(b *testing.B) {
		for b.Loop() {
			full.Contains(middle)
		}
	})
	b.Run("op=Minus", func(b *testing.B) {
		for b.Loop() {
			full.Minus(full)
		}
	})
}
