package daemon

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/policy"
)

func (a *orders) showPolicy() (admin.Policy, error) {
	j, err := a.rules.Describe()
	if err != nil {
		return j, err
	}
	if v := a.node.Load().Status().View; v != nil {
		j.Epoch = uint64(v.Epoch)
	}
	return j, nil
}

// setPolicy gives the cluster the rules in the body of r, and returns when
// they are in force.
func (a *orders) setPolicy(r *http.Request) (admin.Policy, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, 16*policy.MaxTOML))
	if err != nil {
		return admin.Policy{}, err
	}
	p, err := policy.Parse("the new rules", string(text))
	if err != nil {
		return admin.Policy{}, exitcode.With(exitcode.Usage, err)
	}
	// One that cannot be followed is replaced, too.
	if now, err := a.rules.InForce(); err == nil {
		if p.Hash() == now.Hash() {
			return a.showPolicy()
		}
		a.Note(journal.Note, "", "an admin changes the rules: %s", strings.Join(now.Diff("before", p, "now"), "; "))
	} else {
		a.Note(journal.Note, "", "an admin replaces the rules: %v", err)
	}
	if err := a.node.Load().SetPolicy(r.Context(), admin.WishTime, member.Policy{Hash: p.Hash(), TOML: p.TOML()}); err != nil {
		return admin.Policy{}, err
	}
	// The view is there; its epoch begins when all have told what they hold.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(admin.WishTime)
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
