package member

import (
	"fmt"
	"slices"
	"strings"
)

// Two processes can have the identity of one peer: a state directory was
// copied, or a machine was cloned. On the network the second one would take the
// connections of the first, which the others would then drop. So a node that
// finds its own peer in the view, in an incarnation that is not proved to be
// dead, stays away from the network ([Output.Offline]) and asks on the storage.
// If that incarnation answers, this node ends. If others do, they are alive and
// drop it, should it be dead. If nobody does, nobody is disturbed.
//
// Two that start at the same time both go on until one of them is in the view.
// Of a node that was stopped while another one took its place, that one is the
// first, when it goes on.

// twins keep two processes from using one identity.
type twins struct {
	*position
	proofs   *proofs
	scans    *scans
	proposer *proposer
	asking   *asking
	leaving  *leaving

	online bool // nobody has answered the ask for a twin
	over   *End // what this node ends with when its ask is taken back
	overAt int64
}

// present is a member of the newest view that is another incarnation of this
// peer and may be alive; nil if there is none.
func (t *twins) present() *Member {
	if !t.cfg.Bury.IsZero() {
		return nil
	}
	for i := range t.view.Members {
		if y := &t.view.Members[i]; t.isTwin(y.Node) && t.proofs.how(y.Node) == "" {
			return y
		}
	}
	return nil
}

// offline is [Output.Offline]. Before the first look nobody knows whether there
// is a twin.
func (t *twins) offline() bool {
	return t.state == StateOut && t.cfg.Bury.IsZero() && (!t.scans.seen || t.over != nil || !t.online && t.present() != nil)
}

// rebase: there is another view, in which there may be a twin.
func (t *twins) rebase() { t.online = false }

func (t *twins) expelled() { t.online, t.over, t.overAt = false, nil, 0 }

// wait asks on the storage for a twin, and reports whether this node has to
// wait for what comes of it.
func (t *twins) wait() bool {
	a := t.asking
	if t.over != nil {
		// The ask is taken back first: nobody else would do it soon.
		if len(a.there) == 0 || t.now-t.overAt >= t.p.Polite {
			t.finish(*t.over)
		}
		return true
	}
	y := t.present()
	if y == nil || t.online {
		return false
	}
	switch {
	case a.ask == nil:
		a.begin(true)
	case a.ask.others:
		// They may all have died since: then it has to be asked again. The
		// twin has had its time to answer.
		if a.unanswered(t.p.Polite + 2*a.ask.cache) {
			t.leaveToOthers()
		}
	case a.unanswered(t.p.Polite + 2*a.ask.cache):
		t.online = true
		return false
	}
	t.noteWaiting("%s has the identity of this node: waiting for its answer, or until the others have dropped it", y.Name())
	return true
}

// heed takes answers to an ask that was about a twin, and reports whether it was.
func (t *twins) heed(answers []Answer) bool {
	i := slices.IndexFunc(answers, func(a Answer) bool { return t.isTwin(a.Node) })
	switch {
	case i >= 0 && t.state == StateOut && t.proposer.open == nil:
		t.over, t.overAt = twinEnd(answers[i]), t.now
		t.asking.drop()
	case i >= 0 && t.state == StateMember && t.next == nil && t.proposer.open == nil && t.present() != nil:
		// The answer came late, and this node has added itself. It goes again.
		t.asking.drop()
		t.leaving.beginFor(twinEnd(answers[i]))
	case i >= 0: // what is under way comes first
	case t.asking.ask.c.Own:
		// The ask stays: the twin may be slower than they are.
		t.asking.answeredByOthers()
		t.online = false
	default:
		return false
	}
	return true
}

// leaveToOthers: members are alive. They drop the twin, if it is dead. If it is
// not it is asked once more.
func (t *twins) leaveToOthers() {
	t.asking.drop()
	t.online = false
}

func twinEnd(a Answer) *End {
	at := ""
	if len(a.Addrs) > 0 {
		at = " at " + strings.Join(a.Addrs, " ")
	}
	return &End{Code: EndTwin, Answers: []Answer{a}, Text: fmt.Sprintf("%s%s is a member with the identity of this node (%s), and stays it: "+
		"the state directory was copied, or the machine was cloned with it", a.Host, at, a.Node.Peer)}
}
