package rules

import (
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/policy"
)

// describeRule says what a rule amounts to; nil is that there is none.
func describeRule(r *policy.Rule, index int, mount fusefs.Rule) admin.Rule {
	j := admin.Rule{Algorithm: policy.Default}
	rule := mount
	if r != nil {
		j = admin.Rule{Rule: index + 1, Path: r.Path, Algorithm: r.Algorithm, Exclusive: policy.Exclusive(r.Algorithm)}
		rule = effective(r, mount)
	}
	limit := func(d time.Duration, none string) string {
		if d == 0 {
			return none
		}
		return d.String()
	}
	j.Open, j.Scope = "off", "node"
	if rule.Open {
		j.Open = "lock"
	}
	if rule.PerProcess {
		j.Scope = "process"
	}
	j.Yield, j.Wait = limit(rule.Yield, "never"), limit(rule.Wait, "none")
	return j
}

func describePolicy(p *policy.Policy, mount fusefs.Rule) admin.Policy {
	j := admin.Policy{Hash: p.Hash(), TOML: p.TOML(), Rules: []admin.Rule{}, Default: describeRule(nil, 0, mount)}
	for i := range p.Rules {
		j.Rules = append(j.Rules, describeRule(&p.Rules[i], i, mount))
	}
	return j
}

// CheckPath tells which rule of p serves a path; mount is what holds without one.
func CheckPath(p *policy.Policy, path string, mount fusefs.Rule) admin.PolicyCheck {
	r, i := p.Match(path)
	return admin.PolicyCheck{File: path, Rule: describeRule(r, i, sharedMemory(path, mount))}
}

// Describe tells the rules that are in force.
func (r *Rules) Describe() (admin.Policy, error) {
	p, err := r.InForce()
	if err != nil {
		return admin.Policy{}, err
	}
	return describePolicy(p, r.defaults), nil
}

// Check tells which of the rules in force serves a path, relative to the root.
func (r *Rules) Check(path string) (admin.PolicyCheck, error) {
	p, err := r.InForce()
	if err != nil {
		return admin.PolicyCheck{}, err
	}
	return CheckPath(p, path, r.defaults), nil
}
