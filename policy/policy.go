package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Default is the algorithm of files that no rule matches.
const Default = "rw"

// Algorithms lists the names of algorithms, the default one first.
var Algorithms = []string{Default, "rcv", "maekawa", "ring"}

// Exclusive reports whether an algorithm has exclusive locks only.
func Exclusive(algorithm string) bool { return algorithm != Default }

// Open says whether open(2) and truncate(2) take a lock.
type Open string

const (
	OpenDefault Open = "" // of the mount
	OpenLock    Open = "lock"
	OpenOff     Open = "off"
)

// Scope says between whom open locks are.
type Scope string

const (
	// ScopeDefault is ScopeNode, and ScopeProcess for exclusive algorithms.
	ScopeDefault Scope = ""
	// ScopeNode: the processes of a node share an open lock.
	ScopeNode    Scope = "node"
	ScopeProcess Scope = "process"
)

// Limit is a time limit that a rule may set. The zero Limit is that of the
// mount.
type Limit struct {
	Set bool
	// For is greater than zero; 0 is no limit.
	For time.Duration
}

// Rule is one rule. Its fields are the keys of a policy file.
type Rule struct {
	Path      string // see the package comment
	Algorithm string // one of Algorithms
	Open      Open
	// Yield is how long an open lock may be idle before it gives way.
	Yield Limit
	Scope Scope
	// Wait is how long a call waits for a lock at most.
	Wait Limit

	glob glob
}

// Policy is a list of rules. A nil Policy has none. It is not changed after it
// was made by one of the functions of this package, which check it.
type Policy struct {
	Rules []Rule
}

// PerProcess reports whether open locks of the rule are between processes.
func (r *Rule) PerProcess() bool {
	return r.Scope == ScopeProcess || r.Scope == ScopeDefault && Exclusive(r.Algorithm)
}

// String is the rule in one line.
func (r *Rule) String() string {
	s := r.Path + "=" + r.Algorithm
	for _, o := range r.options() {
		s += " " + o[0] + "=" + o[1]
	}
	return s
}

// options are the keys that are set beside path and algorithm.
func (r *Rule) options() [][2]string {
	var out [][2]string
	add := func(key, value string) {
		if value != "" {
			out = append(out, [2]string{key, value})
		}
	}
	add("open", string(r.Open))
	add("yield", r.Yield.text("never"))
	add("scope", string(r.Scope))
	add("wait", r.Wait.text("none"))
	return out
}

func (l Limit) text(unlimited string) string {
	switch {
	case !l.Set:
		return ""
	case l.For == 0:
		return unlimited
	}
	return l.For.String()
}

// Match finds the rule of a file by its path relative to the root; its index
// is -1 when none matches, and for the root itself.
func (p *Policy) Match(path string) (*Rule, int) {
	if path == "" || path == "." || len(p.rules()) == 0 {
		return nil, -1
	}
	names := strings.Split(path, "/")
	for i := range p.rules() {
		if r := &p.Rules[i]; r.glob.matches(names) {
			return r, i
		}
	}
	return nil, -1
}

// Algorithm is the name of the algorithm that serves a file.
func (p *Policy) Algorithm(path string) string {
	if r, i := p.Match(path); i >= 0 {
		return r.Algorithm
	}
	return Default
}

// Uniform is the name of the algorithm that serves all files, or empty if there
// are several.
func (p *Policy) Uniform() string {
	for _, r := range p.rules() {
		if r.Algorithm != Default {
			return ""
		}
	}
	return Default
}

// TOML is the canonical text: equal policies have equal texts. It is a policy
// file without comments; that of a policy without rules is empty.
func (p *Policy) TOML() string {
	if p == nil {
		return ""
	}
	var b strings.Builder
	for i := range p.Rules {
		r := &p.Rules[i]
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "[[rule]]\npath = %s\nalgorithm = %q\n", strconv.Quote(r.Path), r.Algorithm)
		for _, o := range r.options() {
			fmt.Fprintf(&b, "%s = %q\n", o[0], o[1])
		}
	}
	return b.String()
}

// Hash names a policy: 32 hexadecimal digits, or nothing for one without
// rules.
func (p *Policy) Hash() string {
	text := p.TOML()
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Diff says line by line what is different in other, for people. It is empty
// if both are the same.
func (p *Policy) Diff(name string, other *Policy, otherName string) []string {
	var out []string
	mine, theirs := p.byPath(), other.byPath()
	for _, r := range p.rules() {
		switch o := theirs[r.Path]; {
		case o == nil:
			out = append(out, fmt.Sprintf("only %s: %s", name, r.String()))
		case o.String() != r.String():
			out = append(out, fmt.Sprintf("%s: %s; %s: %s", name, r.String(), otherName, o.String()))
		}
	}
	for _, o := range other.rules() {
		if mine[o.Path] == nil {
			out = append(out, fmt.Sprintf("only %s: %s", otherName, o.String()))
		}
	}
	if a, b := p.order(theirs), other.order(mine); !slices.Equal(a, b) {
		out = append(out, fmt.Sprintf("the order, and the first match wins: %s: %s; %s: %s",
			name, strings.Join(a, ", "), otherName, strings.Join(b, ", ")))
	}
	return out
}

func (p *Policy) rules() []Rule {
	if p == nil {
		return nil
	}
	return p.Rules
}

func (p *Policy) byPath() map[string]*Rule {
	m := map[string]*Rule{}
	for i := range p.rules() {
		m[p.Rules[i].Path] = &p.Rules[i]
	}
	return m
}

// order lists the paths that others has, too.
func (p *Policy) order(others map[string]*Rule) []string {
	var out []string
	for _, r := range p.rules() {
		if others[r.Path] != nil {
			out = append(out, r.Path)
		}
	}
	return out
}
