package member

import (
	"errors"
	"fmt"
)

// learn takes a view that is known to be linked: from a message, a look, or an
// own link that a look has shown (mine).
func (m *Machine) learn(w *View, mine bool) {
	if w.Epoch <= m.top().Epoch || w.Cluster != m.cfg.Cluster {
		return
	}
	m.memory.linked(w.Epoch)
	own := m.proposer.proposed()
	if m.proposer.learned(w) {
		mine = true
	}
	if w.Has(m.me) {
		m.follow(w, own, mine)
		return
	}
	switch m.state {
	case StateMember:
		m.dropped(w)
	case StateLeaving:
		if mine {
			m.mail.announce(w, m.view, w)
		}
		m.left(w)
	case StateOut:
		if mine {
			m.mail.announce(w, m.view, w)
		}
		m.outside(w)
	}
}

// follow begins the installation of w; own is the view that this node was trying
// to link. Nothing is sent at its epoch, and
// nothing is granted at all, until the engine has stopped granting at the
// epoch before it: only so does "y promises me at e" mean that y is not live
// in an epoch before e.
func (m *Machine) follow(w, own *View, mine bool) {
	if m.state == StateOut {
		m.succession.added(w, own)
		if !m.joined {
			m.terms.fixFileID(w)
		}
		m.join()
		if m.joining.quit {
			m.leaving.joined()
		}
		m.scans.join()
		m.memory.joined()
	}
	m.position.follow(w, mine)
	m.engine.freeze(w)
}

// install makes the view that the engine was frozen for the one of this node.
func (m *Machine) install() {
	old, mine := m.position.install()
	w := m.view
	m.scans.installed()
	m.heartbeats.install()
	m.forget(w)
	m.noteChange(old, w)
	m.mail.meetAll(w)
	if mine {
		m.mail.announce(w, old, w)
		m.storage.cleanUp()
	}
	m.storage.lookSoon()
	m.heartbeats.send(true)
	if w.IsRevoked(m.me.Peer) && m.state == StateMember {
		m.leaving.beginFor(&End{Code: EndRevoked, Text: revokedText})
	}
	m.changes.installed()
	m.heartbeats.refuseRevoked()
	m.heartbeats.checkSynced()
}

// forget drops what is about nodes that are not in w.
func (m *Machine) forget(w *View) {
	m.sponsor.forget()
	m.fences.forget(w)
	m.proofs.forget(w)
}

// dropped: the others went on without this node.
func (m *Machine) dropped(w *View) {
	why := w.Why(m.me)
	if why == "" {
		why = fmt.Sprintf("not a member of view %d any more", w.Epoch)
	}
	m.expelled(Expelled{Epoch: w.Epoch, By: w.By, Why: why})
	m.memory.dropped()
	m.outside(w)
}

// expelled: what this node held is lost. It joins again after a pause.
func (m *Machine) expelled(e Expelled) {
	m.position.expelled(e)
	m.joining.expelled()
}

// left: a view without this node is known.
func (m *Machine) left(w *View) {
	if !m.leaving.back {
		m.leaving.end("")
		return
	}
	m.leaving.reset()
	m.joining.pause(m.p.BackoffMin)
	m.outside(w)
	m.asking.dropFor(m.p.BackoffMax)
}

// outside: w is the newest view known, and this node is not in it.
func (m *Machine) outside(w *View) {
	m.succession.outside(w)
	m.position.outside(w)
	m.engine.outside()
	m.heartbeats.outside()
	m.forget(w)
	m.asking.drop()
	if m.proposer.open == nil { // one of proposeAbove is open still, and adds this incarnation
		m.draw(m.view)
	}
	m.joining.rebase()
	m.changes.giveUp(errors.New("this node was dropped from the view: ask another one, or again"))
	m.mail.meetAll(w)
	if end := m.terms.unmet(); end != nil {
		m.finish(*end)
	}
}

// noteChange tells the journal who came and went.
func (m *Machine) noteChange(old, w *View) {
	m.note(Installed, Node{}, "", "view %d: %d members, by %s: %s", w.Epoch, len(w.Members), w.By.Peer, w.Reason)
	for i := range w.Members {
		if y := &w.Members[i]; !old.Has(y.Node) && y.Node != m.me {
			m.note(Joined, y.Node, y.Host, "%s joined", y.Name())
		}
	}
	for i := range old.Members {
		y := &old.Members[i]
		if w.Has(y.Node) {
			continue
		}
		if why := w.Why(y.Node); w.By == y.Node {
			m.note(Left, y.Node, y.Host, "%s left", y.Name())
		} else if why != "" {
			m.note(Removed, y.Node, y.Host, "%s was dropped: %s", y.Name(), why)
		} else {
			m.note(Removed, y.Node, y.Host, "%s was dropped in a view before this one", y.Name())
		}
	}
}
