package main

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p/member"
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

func checkPath(p *policy.Policy, path string, mount fusefs.Rule) admin.PolicyCheck {
	r, i := p.Match(path)
	return admin.PolicyCheck{File: path, Rule: describeRule(r, i, sharedMemory(path, mount))}
}

func (a *adminOrders) showPolicy() (admin.Policy, error) {
	p, err := a.rules.inForce()
	if err != nil {
		return admin.Policy{}, err
	}
	j := describePolicy(p, a.rules.defaults)
	if v := a.node.Load().Status().View; v != nil {
		j.Epoch = uint64(v.Epoch)
	}
	return j, nil
}

func (a *adminOrders) checkPolicy(path string) (admin.PolicyCheck, error) {
	p, err := a.rules.inForce()
	if err != nil {
		return admin.PolicyCheck{}, err
	}
	return checkPath(p, path, a.rules.defaults), nil
}

// setPolicy gives the cluster the rules in the body of r, and returns when
// they are in force.
func (a *adminOrders) setPolicy(r *http.Request) (admin.Policy, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, 16*policy.MaxTOML))
	if err != nil {
		return admin.Policy{}, err
	}
	p, err := policy.Parse("the new rules", string(text))
	if err != nil {
		return admin.Policy{}, exitcode.With(exitcode.Usage, err)
	}
	// One that cannot be followed is replaced, too.
	if now, err := a.rules.inForce(); err == nil {
		if p.Hash() == now.Hash() {
			return a.showPolicy()
		}
		a.note(journal.Note, "", "an admin changes the rules: %s", strings.Join(now.Diff("before", p, "now"), "; "))
	} else {
		a.note(journal.Note, "", "an admin replaces the rules: %v", err)
	}
	if err := a.node.Load().SetPolicy(r.Context(), wishTime, member.Policy{Hash: p.Hash(), TOML: p.TOML()}); err != nil {
		return admin.Policy{}, err
	}
	// The view is there; its epoch begins when all have told what they hold.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(wishTime)
	for s := a.node.Load().Status(); !s.Granting || s.View == nil || !s.View.Policy.Serves(p.Hash()); s = a.node.Load().Status() {
		select {
		case <-tick.C:
		case <-end:
			return admin.Policy{}, errors.New("the rules are changed, but the cluster does not grant locks yet: see dmxfs status")
		case <-r.Context().Done():
			return admin.Policy{}, r.Context().Err()
		}
	}
	return a.showPolicy()
}
