package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

const (
	// MaxTOML bounds the canonical text of a policy, in bytes: it is part of
	// every view.
	MaxTOML = 60 << 10
	// maxLimit bounds yield and wait: more than that is a slip.
	maxLimit = 10_000 * time.Hour
)

// file is a policy file as it is written.
type file struct {
	Rule []fileRule `toml:"rule"`
}

type fileRule struct {
	Path      *string `toml:"path"`
	Algorithm *string `toml:"algorithm"`
	Open      *string `toml:"open"`
	Yield     *string `toml:"yield"`
	Scope     *string `toml:"scope"`
	Wait      *string `toml:"wait"`
}

// Parse reads a policy file. Errors name the file (by name), the line and the
// value, all that there are.
func Parse(name, text string) (*Policy, error) {
	var f file
	if err := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(&f); err != nil {
		return nil, fmt.Errorf("%s: %s", name, Problem(err))
	}
	at := locate(text)
	p := &Policy{}
	var errs []error
	for i := range f.Rule {
		r, err := f.Rule[i].rule()
		if err != nil {
			for _, e := range err {
				errs = append(errs, fmt.Errorf("%s: %s: %w", name, at.line(i, e.key), e.error))
			}
			continue
		}
		if why := p.add(r); why != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", name, at.line(i, "path"), why))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return p, p.size(name)
}

// keyError is what is wrong with the value of one key of a rule.
type keyError struct {
	key string
	error
}

// rule checks what is written.
func (f *fileRule) rule() (Rule, []keyError) {
	var errs []keyError
	bad := func(key, format string, args ...any) {
		errs = append(errs, keyError{key, fmt.Errorf(format, args...)})
	}
	var r Rule
	switch {
	case f.Path == nil:
		bad("", "a rule has no path")
	default:
		r.Path = *f.Path
		var err error
		if r.glob, err = compile(r.Path); err != nil {
			bad("path", "path %q %w", r.Path, err)
		}
	}
	switch {
	case f.Algorithm == nil:
		bad("", "a rule has no algorithm: %s", oneOf(Algorithms))
	case !slices.Contains(Algorithms, *f.Algorithm):
		bad("algorithm", "algorithm %q: must be %s", *f.Algorithm, oneOf(Algorithms))
	default:
		r.Algorithm = *f.Algorithm
	}
	if f.Open != nil {
		if r.Open = Open(*f.Open); r.Open != OpenLock && r.Open != OpenOff {
			bad("open", "open %q: must be lock or off", *f.Open)
		}
	}
	if f.Scope != nil {
		switch r.Scope = Scope(*f.Scope); {
		case r.Scope != ScopeNode && r.Scope != ScopeProcess:
			bad("scope", "scope %q: must be node or process", *f.Scope)
		case r.Scope == ScopeNode && r.Algorithm != "" && Exclusive(r.Algorithm):
			bad("scope", `scope "node": with algorithm %q open locks are between processes`, r.Algorithm)
		}
	}
	limit := func(key string, text *string, unlimited string) (l Limit) {
		if text != nil {
			var err error
			if l, err = parseLimit(*text, unlimited); err != nil {
				bad(key, "%s %q: %w", key, *text, err)
			}
		}
		return l
	}
	r.Yield = limit("yield", f.Yield, "never")
	r.Wait = limit("wait", f.Wait, "none")
	return r, errs
}

// ParseYield reads the text of a yield: a duration, or never.
func ParseYield(text string) (Limit, error) { return parseLimit(text, "never") }

// ParseWait reads the text of a wait: a duration, or none.
func ParseWait(text string) (Limit, error) { return parseLimit(text, "none") }

func parseLimit(text, unlimited string) (Limit, error) {
	if text == unlimited {
		return Limit{Set: true}, nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return Limit{}, fmt.Errorf("must be a duration like 10s or 1m30s, or %s", unlimited)
	case d <= 0:
		return Limit{}, fmt.Errorf("must be greater than zero, or %s", unlimited)
	case d > maxLimit:
		return Limit{}, fmt.Errorf("must be %v at most, or %s", maxLimit, unlimited)
	}
	return Limit{Set: true, For: d}, nil
}

// ParseFlags reads rules in the form GLOB=ALGORITHM, of an option of that name.
func ParseFlags(option string, rules []string) (*Policy, error) {
	p := &Policy{}
	var errs []error
	for _, text := range rules {
		if err := p.addFlag(text); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", option, text, err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return p, p.size(option)
}

func (p *Policy) addFlag(text string) error {
	i := strings.LastIndexByte(text, '=')
	if i < 0 {
		return fmt.Errorf("must be GLOB=ALGORITHM, like 'spool/**=%s'", Algorithms[1])
	}
	r := Rule{Path: text[:i], Algorithm: text[i+1:]}
	if exclusive := Algorithms[1:]; !slices.Contains(exclusive, r.Algorithm) {
		return fmt.Errorf("algorithm %q: must be %s", r.Algorithm, oneOf(exclusive))
	}
	var err error
	if r.glob, err = compile(r.Path); err != nil {
		return fmt.Errorf("path %q %w", r.Path, err)
	}
	return p.add(r)
}

// Join is the rules of p and behind them those of o.
func (p *Policy) Join(o *Policy) (*Policy, error) {
	all := &Policy{Rules: slices.Clone(p.Rules)}
	for _, r := range o.Rules {
		if err := all.add(r); err != nil {
			return nil, err
		}
	}
	return all, all.size("the rules")
}

// add puts a rule behind the others, if it can ever be the first that matches.
func (p *Policy) add(r Rule) error {
	for i := range p.Rules {
		switch o := &p.Rules[i]; {
		case slices.Equal(o.glob, r.glob):
			return fmt.Errorf("path %q is there twice: it is the path of rule %d, too", r.Path, i+1)
		case o.glob.covers(r.glob):
			return fmt.Errorf("path %q matches no file that rule %d, with path %q, does not match first", r.Path, i+1, o.Path)
		}
	}
	p.Rules = append(p.Rules, r)
	return nil
}

func (p *Policy) size(name string) error {
	if n := len(p.TOML()); n > MaxTOML {
		return fmt.Errorf("%s: the policy has %d bytes, over %d", name, n, MaxTOML)
	}
	return nil
}

func oneOf(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
