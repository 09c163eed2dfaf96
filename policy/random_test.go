package policy

import (
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"pgregory.net/rapid"
)

var (
	segment = rapid.SampledFrom([]string{"a", "b", "ab", "*", "a*", "?", "**", "[ab]", "{a,bb}"})
	name    = rapid.SampledFrom([]string{"a", "b", "ab", "bb", "c"})
	globs   = rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(segment, 1, 5).Draw(t, "parts"), "/")
	})
	paths = rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(name, 1, 6).Draw(t, "names"), "/")
	})
)

// A path matches as the library says, but for "**" at the end, which is not
// also the directory itself.
func TestMatchesLikeTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern, path := globs.Draw(t, "glob"), paths.Draw(t, "path")
		g, err := compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		want := pattern
		for strings.HasSuffix(want, "/**/**") {
			want = strings.TrimSuffix(want, "/**")
		}
		if want == "**" || strings.HasSuffix(want, "/**") {
			want += "/*"
		}
		lib, err := doublestar.Match(want, path)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.matches(strings.Split(path, "/")); got != lib {
			t.Errorf("%q matches %q: %v, the library says %v", pattern, path, got, lib)
		}
	})
}

// Braces written out match what the library matches with them. Pattern and name
// get a letter at their ends: where a name ends, the library takes neither a *
// before braces for nothing nor more than two in a row.
func TestBracesLikeTheLibrary(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"a", "b", "*", "?", "{a,b}", "{a,}", "{a,{b,a*}}b", "{?,ab}", `\{`, `\,`, "[ab]", "[]{]", ",", "}", "{a}", "{*,}", `\**`, "[***]"})
	names := rapid.StringMatching(`[ab{},\]*]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		pattern, name := strings.Join(rapid.SliceOfN(pieces, 1, 5).Draw(t, "pieces"), ""), names.Draw(t, "name")
		g, err := compile(pattern)
		if err != nil {
			t.Skip(err)
		}
		if len(g) != 1 { // "**", and what is like it
			return
		}
		lib, err := doublestar.Match(pattern+"$", name+"$")
		if err != nil {
			t.Skip(err)
		}
		if got := g.matches([]string{name}); got != lib {
			t.Errorf("%q matches %q: %v, the library says %v", pattern, name, got, lib)
		}
	})
}

// No pattern that is taken has many ways to match: the worst that are, with the
// longest name.
func TestPatternsHaveABound(t *testing.T) {
	for _, x := range []struct {
		pattern string
		taken   bool
	}{
		{strings.Repeat("{a,b}", 6), true},
		{strings.Repeat("{a,b}", 7), false},
		{strings.Repeat("*{a,b}", 14) + "c", false},
		{strings.Repeat("*{a,b}", 6) + "c", true},
		{strings.Repeat("{a}", 200), true},
		{strings.Repeat("{a}", 300), false},
		{strings.Repeat("{", 300) + "a" + strings.Repeat("}", 300), false},
		{"{" + strings.Repeat("a,", 63) + "b}", true},
		{"{" + strings.Repeat("a,", 64) + "b}", false},
		{strings.Repeat("*a", 512), true},
		{strings.Repeat("*a", 513), false},
	} {
		g, err := compile(x.pattern)
		if (err == nil) != x.taken {
			t.Errorf("%.40q: %v", x.pattern, err)
			continue
		}
		if err == nil {
			g.matches([]string{strings.Repeat("ab", 127)})
			g.matches([]string{strings.Repeat("a", 255)})
		}
	}
}

func anyPolicy(t *rapid.T) *Policy {
	p := &Policy{}
	for range rapid.IntRange(0, 4).Draw(t, "rules") {
		r := Rule{Path: globs.Draw(t, "path"), Algorithm: rapid.SampledFrom(Algorithms).Draw(t, "algorithm")}
		var err error
		if r.glob, err = compile(r.Path); err != nil {
			t.Fatal(err)
		}
		_ = p.add(r) // some are refused
	}
	return p
}

// What may be moved has the same algorithm before and after, and so has all
// that is below it.
func TestWhatMovesKeepsItsAlgorithm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t)
		from, to, below := paths.Draw(t, "from"), paths.Draw(t, "to"), paths.Draw(t, "below")
		if !p.Movable(from, to, true) {
			return
		}
		for _, rest := range []string{"", "/" + below} {
			if a, b := p.Algorithm(from+rest), p.Algorithm(to+rest); a != b {
				t.Errorf("%q to %q: %s becomes %s", from+rest, to+rest, a, b)
			}
		}
	})
}

// A rule that is refused as covered would never be the first to match.
func TestCoveredRulesNeverMatchFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, errA := compile(globs.Draw(t, "first"))
		b, errB := compile(globs.Draw(t, "second"))
		path := strings.Split(paths.Draw(t, "path"), "/")
		if errA == nil && errB == nil && a.covers(b) && b.matches(path) && !a.matches(path) {
			t.Errorf("%v does not cover %v: %v", a, b, path)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("[[rule]]\npath = \"a/**\"\nalgorithm = \"rcv\"\nwait = \"1s\"\n")
	f.Add("rule = [{path = '[a-z]/{b,c}', algorithm = 'ring', yield = 'never', open = 'off', scope = 'process'}]")
	f.Add("[[rule]]\n[[rule]]\nx.y = 1\n[a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("f", text)
		if err != nil {
			return
		}
		again, err := Parse("canonical", p.TOML())
		if err != nil || again.Hash() != p.Hash() {
			t.Fatalf("%v\n%s", err, p.TOML())
		}
		p.Algorithm("a/b/c")
	})
}
