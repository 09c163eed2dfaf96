package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// glob is the path of a rule, split at its slashes. The "**" at the end of a
// path becomes "**", "*", as it wants one name at least.
type glob []part

// part is what one name has to be like or, if it is anyNames, any number of
// names.
type part struct {
	pattern string
	literal bool   // without wildcards
	written string // with its braces written out, the alternatives between slashes
}

func (p part) matches(name string) bool {
	if p.literal {
		return p.pattern == name
	}
	for alternative := range strings.SplitSeq(p.written, "/") {
		if doublestar.MatchUnvalidated(alternative, name) {
			return true
		}
	}
	return false
}

var (
	anyNames = part{pattern: "**", written: "**"}
	anyName  = part{pattern: "*", written: "*"}
)

const (
	// maxParts fits the positions in a glob, and the end, into a places.
	maxParts = 63
)

// places are the positions in a glob where a match of some names can stand, as
// a set of bits. Bit len(glob) is the end.
type places uint64

// compile checks the path of a rule. An error says why it matches nothing, or
// is malformed.
func compile(path string) (glob, error) {
	switch {
	case path == "":
		return nil, errors.New("is empty: it matches no file")
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return nil, errors.New("has characters that are not text")
	case strings.HasPrefix(path, "/"):
		return nil, fmt.Errorf("begins with a slash and matches nothing: paths are relative to the root, write %q", strings.TrimLeft(path, "/"))
	case strings.HasSuffix(path, "/"):
		return nil, fmt.Errorf("ends with a slash and matches nothing: for all that is below write %q", path+"**")
	}
	if err := checkSyntax(path); err != nil {
		return nil, err
	}
	var g glob
	for _, pattern := range strings.Split(path, "/") {
		all, err := alternatives(pattern)
		if err != nil {
			return nil, err
		}
		p := part{pattern, !strings.ContainsAny(pattern, `*?[{\`), strings.Join(all, "/")}
		switch {
		case pattern == "":
			return nil, errors.New("has an empty name between two slashes: it matches no file")
		case pattern == "." || pattern == "..":
			return nil, fmt.Errorf("has the name %q: it matches no file, as paths are told without it", pattern)
		case p == anyNames && len(g) > 0 && g[len(g)-1] == anyNames:
			continue // the same as one
		case p.literal && len(pattern) > 255:
			return nil, errors.New("has a name of over 255 bytes: it matches no file")
		}
		g = append(g, p)
	}
	if g[0].pattern == ".dmxfs" {
		return nil, errors.New("is in .dmxfs, which no program sees: it matches no file")
	}
	if g[len(g)-1] == anyNames {
		g = append(g, anyName)
	}
	if len(g) > maxParts {
		return nil, fmt.Errorf("has more than %d parts", maxParts)
	}
	return g, nil
}

// checkSyntax looks for what is malformed within names, or would be misread.
func checkSyntax(path string) error {
	inClass, braces := false, 0
	first := false // of a class
	var lo rune    // the character before, in a class
	isRange := false
	for rest := path; rest != ""; {
		c, n := utf8.DecodeRuneInString(rest)
		rest = rest[n:]
		escaped := c == '\\'
		if escaped {
			if rest == "" {
				return errors.New(`ends with a backslash: it is malformed`)
			}
			c, n = utf8.DecodeRuneInString(rest)
			rest = rest[n:]
		}
		switch {
		case c == '/' && escaped:
			return errors.New(`has a backslash before a slash: it is malformed`)
		case c == '/' && inClass:
			return errors.New("has a slash within [ ]: it matches no file")
		case c == '/' && braces > 0:
			return errors.New("has a slash within { }: write one rule for each alternative")
		case inClass && !escaped && first && (c == '!' || c == '^'):
			continue
		case inClass && !escaped && c == ']' && !first:
			inClass = false
		case inClass && !escaped && c == '-' && lo != 0 && !strings.HasPrefix(rest, "]"):
			isRange = true
			continue
		case inClass && isRange:
			if c < lo {
				return fmt.Errorf("has the range %c-%c, which is empty: it matches no file", lo, c)
			}
			isRange, lo = false, 0
		case inClass:
			lo = c
		case escaped:
		case c == '[':
			inClass, first, lo, isRange = true, true, 0, false
			continue
		case c == '{':
			braces++
		case c == '}' && braces > 0:
			braces--
		}
		first = false
	}
	switch {
	case inClass:
		return errors.New("is malformed: a [ has no ]")
	case braces > 0:
		return errors.New("is malformed: a { has no }")
	case !doublestar.ValidatePattern(path):
		return errors.New("is malformed")
	}
	return nil
}

// begin is where a match stands before the first name.
func (g glob) begin() places { return g.skip(1) }

// skip adds the places behind each "**", which may stand for no name.
func (g glob) skip(at places) places {
	for i, p := range g {
		if at&(1<<i) != 0 && p == anyNames {
			at |= 1 << (i + 1)
		}
	}
	return at
}

// step is where a match stands after one more name.
func (g glob) step(at places, name string) places {
	var next places
	for i, p := range g {
		switch {
		case at&(1<<i) == 0:
		case p == anyNames:
			next |= 1 << i
		case p.matches(name):
			next |= 1 << (i + 1)
		}
	}
	return g.skip(next)
}

// after is where a match stands after names.
func (g glob) after(names []string) places {
	at := g.begin()
	for _, name := range names {
		if at == 0 {
			break
		}
		at = g.step(at, name)
	}
	return at
}

func (g glob) matches(names []string) bool { return g.after(names)&(1<<len(g)) != 0 }

// all reports whether from at every path below matches.
func (g glob) all(at places) bool {
	n := len(g)
	return n >= 2 && g[n-2] == anyNames && g[n-1] == anyName && at&(1<<(n-2)) != 0
}

// none reports whether from at no path below matches.
func (g glob) none(at places) bool { return at&^(1<<len(g)) == 0 }

// prefix lists the names without wildcards at the beginning of g.
func (g glob) prefix() []string {
	var names []string
	for _, p := range g {
		if !p.literal {
			break
		}
		names = append(names, p.pattern)
	}
	return names
}

// covers reports whether g matches all that o matches. It need not find out:
// false may mean that it is not known.
func (g glob) covers(o glob) bool {
	names := o.prefix()
	if len(names) == len(o) {
		return g.matches(names)
	}
	return g.all(g.after(names))
}
