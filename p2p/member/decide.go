package member

import (
	"errors"
	"fmt"
	"slices"
)

// decide proposes the next view, if one is needed. A member drops those that
// are not live in any epoch, does what admins want, and adds newcomers.
func (m *Machine) decide() {
	if m.proposer.open != nil || m.next != nil || m.holding() || m.scans.unreadable() {
		return
	}
	if dead := m.proofs.members(); len(dead) > 0 && m.fences.stand(dead, true) {
		m.proposer.propose(m.without(ReasonReplace, dead, m.proofs.how))
		return
	}
	gone, wait := m.silence.members()
	switch {
	case len(gone) > 0 && !wait:
		if m.cfg.HasFence && !m.fences.stand(gone, false) {
			return
		}
		reason := ReasonDrop
		if slices.ContainsFunc(gone, func(n Node) bool { return m.heartbeats.peers[n].refuse }) {
			reason = ReasonAdmin
		}
		m.proposer.propose(m.without(reason, gone, m.silence.how))
	case len(gone) > 0:
	case m.proposeChange():
	default:
		m.sponsor.propose()
	}
}

// proposeChange proposes a view for what admins want, and reports whether it did.
// Only a live node does: the change may have to wait, but the others do not.
func (m *Machine) proposeChange() bool {
	w := m.changes.next()
	if w == nil || m.now >= m.lease.until() {
		return false
	}
	m.proposer.propose(w)
	return m.proposer.open != nil
}

// tryUnreadable gives up where the newest view can never be read, and builds on
// one that is damaged. It is called after every input.
func (m *Machine) tryUnreadable() {
	bad := m.scans.bad
	if m.next != nil || !m.scans.unreadable() {
		return
	}
	code := EndCode(0)
	switch {
	case errors.Is(bad.err, ErrForeign):
		code = EndForeign
	case errors.Is(bad.err, ErrNewer):
		code = EndNewer
	}
	patience := m.p.LookTenure + m.p.lookMargin() + m.cfg.Self.Cache
	if code != 0 && m.state == StateOut {
		patience = 0
	}
	switch {
	case bad.age.ms < patience:
	case code == EndNewer:
		m.finish(End{Code: code, Text: fmt.Sprintf("%v; this is %s: all hosts of a cluster run the same version", bad, ownVersion(m.cfg.Self.Version))})
	case code != 0:
		m.finish(End{Code: code, Text: bad.Error()})
	case m.state == StateLeaving:
		m.leaving.end(bad.Error())
	case m.state == StateMember:
		// Nobody here knows whether that view has this node, and who was
		// given its locks since. So it starts anew.
		m.expelled(Expelled{Epoch: bad.epoch, Why: bad.Error()})
		m.proposer.forget()
		m.outside(m.view)
	case m.cfg.HasFence:
		m.noteWaiting("%v: nobody can go on, since only it says who has to be fenced; stop all nodes, remove that file, and start again", bad)
	case m.proposer.open != nil && m.proposer.open.view.Epoch > bad.epoch: // under way
	case m.joining.quit || m.now < m.joining.at || !m.cfg.Bury.IsZero():
	default:
		m.joining.proposeAbove()
	}
}
