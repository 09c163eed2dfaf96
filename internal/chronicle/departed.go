package chronicle

import (
	"slices"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// departed remembers who went lately, for `dmxfs peers`: what happened before
// this daemon began is in the journal.
type departed struct {
	mu   sync.Mutex
	list []admin.Gone // the latest is the last
}

// maxDeparted bounds the list: a cluster has 128 members at most.
const maxDeparted = 128

// note takes account of a notice of the membership.
func (d *departed) note(n member.Notice, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch n.Kind {
	case member.Joined, member.Left, member.Removed:
		d.list = slices.DeleteFunc(d.list, func(x admin.Gone) bool { return x.ID == n.Node.Peer })
	}
	switch n.Kind {
	case member.Left, member.Removed:
		state := "left"
		if n.Kind == member.Removed {
			state = "expelled"
		}
		d.list = append(d.list, admin.Gone{ID: n.Node.Peer, Host: n.Host, State: state, Why: n.Text, At: now.UTC()})
		d.list = d.list[max(len(d.list)-maxDeparted, 0):]
	}
}

// but lists who went, without the members of v.
func (d *departed) but(v *member.View) []admin.Gone {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []admin.Gone{}
	for _, x := range d.list {
		if !v.HasPeer(x.ID) {
			out = append(out, x)
		}
	}
	return out
}
