package policy

import (
	"slices"
	"strings"
)

// Movable reports whether a file may get another path: whether the same
// algorithm serves both. Otherwise rename(2) and link(2) fail with EXDEV, and
// a lock never goes from one algorithm to another.
//
// A directory is moved with all that is in it, now or later. So either every
// rule must go on for the paths below in the same way from both (as `**/*.db`
// does wherever the directory is), or all paths below each must be served by
// one and the same algorithm.
func (p *Policy) Movable(from, to string, dir bool) bool {
	if len(p.rules()) == 0 {
		return true
	}
	if p.Algorithm(from) != p.Algorithm(to) {
		return false
	}
	if !dir {
		return true
	}
	a, b := p.below(from), p.below(to)
	if slices.Equal(a, b) {
		return true
	}
	one, ok := p.uniform(a)
	other, too := p.uniform(b)
	return ok && too && one == other
}

// below is where each rule stands at the paths below a directory.
func (p *Policy) below(dir string) []places {
	names := strings.Split(dir, "/")
	out := make([]places, len(p.Rules))
	for i := range p.Rules {
		g := p.Rules[i].glob
		out[i] = g.after(names) &^ (1 << len(g)) // the directory itself is no path below
	}
	return out
}

// uniform is the algorithm of all paths below a directory, if it is one.
func (p *Policy) uniform(at []places) (algorithm string, ok bool) {
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.glob.none(at[i]) {
			continue
		}
		if algorithm != "" && algorithm != r.Algorithm {
			return "", false
		}
		algorithm = r.Algorithm
		if r.glob.all(at[i]) {
			return algorithm, true
		}
	}
	return Default, algorithm == "" || algorithm == Default
}
