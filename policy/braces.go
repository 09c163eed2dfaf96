package policy

import (
	"fmt"
	"strings"
)

// Bounds of the pattern of one name. The library tries the alternatives of each
// group of braces after those of the group before, and again at each place where
// a wildcard can end: a policy of some lines could keep every open for minutes.
// So braces are written out, and what is left takes a time that the bounds and
// the length of a name give.
const (
	maxAlternatives = 64
	maxPattern      = 1024 // bytes
)

// alternatives writes out the braces of the pattern of one name. Which is well
// formed: see checkSyntax.
func alternatives(pattern string) ([]string, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("has a name of over %d bytes", maxPattern)
	}
	done, todo := []string(nil), []string{pattern}
	for steps := 0; len(todo) > 0; steps++ {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		before, options, after := cutBraces(p)
		if options == nil {
			done = append(done, oneStar(p))
		}
		for _, o := range options {
			todo = append(todo, before+o+after)
		}
		if len(done)+len(todo) > maxAlternatives || steps > 4*maxAlternatives {
			return nil, errTooManyBraces
		}
	}
	return done, nil
}

var errTooManyBraces = fmt.Errorf("has a name with more than %d alternatives in { }: write one rule for each, or a wildcard", maxAlternatives)

// cutBraces cuts a pattern around its first group of braces, and that at its
// commas; options is nil if there is none.
func cutBraces(p string) (before string, options []string, after string) {
	depth, begin := 0, 0
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '\\':
			i++
		case c == '[':
			i = classEnd(p, i)
		case c == '{':
			if depth++; depth == 1 {
				before, begin = p[:i], i+1
			}
		case depth == 0:
		case c == ',' && depth == 1:
			options, begin = append(options, p[begin:i]), i+1
		case c == '}':
			if depth--; depth == 0 {
				return before, append(options, p[begin:i]), p[i+1:]
			}
		}
	}
	return "", nil, ""
}

// oneStar writes one * for several in a row, which mean the same within a name.
// At the end of a name the library takes no more than two for nothing. A "**"
// alone stays: it may be a name for itself, which is any number of names.
func oneStar(p string) string {
	if p == "**" || !strings.Contains(p, "**") {
		return p
	}
	var out strings.Builder
	for i := 0; i < len(p); {
		end := i + 1
		switch p[i] {
		case '\\':
			end++
		case '[':
			end = classEnd(p, i) + 1
		case '*':
			for end < len(p) && p[end] == '*' {
				end++
			}
			out.WriteByte('*')
			i = end
			continue
		}
		end = min(end, len(p))
		out.WriteString(p[i:end])
		i = end
	}
	return out.String()
}

// classEnd is where the class that begins at i ends. A ] at its begin belongs
// to it.
func classEnd(p string, i int) int {
	if i++; i < len(p) && (p[i] == '!' || p[i] == '^') {
		i++
	}
	for first := true; i < len(p); first = false {
		switch {
		case p[i] == '\\':
			i++
		case p[i] == ']' && !first:
			return i
		}
		i++
	}
	return len(p)
}
