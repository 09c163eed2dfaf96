package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/chronicle"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/rules"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p/cluster"
)

// orders does to the membership what an admin wants through the control socket. Everything
// goes to the journal, with the reason.
type orders struct {
	*chronicle.Chronicle
	node   *atomic.Pointer[cluster.Node]
	rules  *rules.Rules
	self   string // peer ID
	fences bool   // there is a fence command
	strays *strays
	forget func(peer string) error // removes its record on the shared directory
	asker  asker
}

// removePeer drops a member that may be alive.
func (a *orders) removePeer(r *http.Request) error {
	id, why := r.FormValue("peer"), r.FormValue("reason")
	v := a.node.Load().Status().View
	if v == nil { // a daemon that goes on answers before it is a member again
		return errors.New("this host is no member yet: see dmxfs status")
	}
	for _, m := range v.Members {
		if m.Peer != id {
			continue
		}
		a.Note(journal.Note, id, "an admin removes %s: %s", m.Name(), why)
		patience := admin.WishTime
		if a.fences {
			patience += admin.FenceTime
		}
		return a.node.Load().Remove(r.Context(), patience, m.Node, why)
	}
	return fmt.Errorf("%s is not a member", id)
}

// forgetPeer has all members forget a host that is gone for good: nobody waits for an answer of
// it any more, see strays.
func (a *orders) forgetPeer(r *http.Request) error {
	id, why := r.FormValue("peer"), r.FormValue("reason")
	if _, err := peer.Decode(id); err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("%q is not a peer ID: %w", id, err))
	}
	v, self, err := liveView(a.node.Load())
	if err != nil {
		return err
	}
	if v.HasPeer(id) {
		return fmt.Errorf("%s is a member: it is to leave first (dmxfs unmount there), or to be dropped (dmxfs peers remove)", id)
	}
	failed := a.forgotten(id, why)
	for i := range v.Members {
		if m := &v.Members[i]; m.Node != self {
			if err := a.asker.ask(r.Context(), m.Peer, askTimeout, question{What: "forget", Peer: id, Why: why}, &struct{}{}); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s has not forgotten it: %s", m.Name(), silence(err, askTimeout)))
			}
		}
	}
	if err := a.forget(id); err != nil {
		failed = errors.Join(failed, err)
	}
	return failed
}

// forgotten is what each member does for that.
func (a *orders) forgotten(id, why string) error {
	if err := a.strays.forget(id); err != nil {
		return err
	}
	a.Note(journal.Note, id, "an admin has all members forget %s, which is gone: %s", id, why)
	return nil
}

// revokePeer keeps a peer out, or lets it in again.
func (a *orders) revokePeer(r *http.Request) error {
	id, why, undo := r.FormValue("peer"), r.FormValue("reason"), r.FormValue("undo") != ""
	if _, err := peer.Decode(id); err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("%q is not a peer ID: %w", id, err))
	}
	if id == a.self {
		return errors.New("a node cannot revoke itself: unmount it, or revoke it on another member")
	}
	if undo {
		a.Note(journal.Note, id, "an admin lets %s in again: %s", id, why)
	} else {
		a.Note(journal.Note, id, "an admin revokes %s: %s", id, why)
	}
	return a.node.Load().Revoke(r.Context(), admin.WishTime, id, undo)
}
