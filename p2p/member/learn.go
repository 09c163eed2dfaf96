package member

import (
	"fmt"
	"maps"
)

// learn takes a view that is known to be linked: from a message, a look, or an
// own link that a look has shown (mine).
func (m *Machine) learn(w *View, mine bool) {
	if w.Epoch <= m.top().Epoch || w.Cluster != m.cfg.Cluster {
		return
	}
	m.saveEpoch(w.Epoch)
	if p := m.prop; p != nil && w.Epoch >= p.view.Epoch {
		// Now the outcome of the proposal is known: who was refused because
		// of it has been dropped, or may be promised to again.
		mine = mine || p.view.same(w)
		m.prop = nil
	}
	if w.Has(m.me) {
		m.follow(w, mine)
		return
	}
	switch m.st {
	case StateMember:
		m.expelled(w)
		m.outside(w)
	case StateLeaving:
		if mine {
			m.announce(w, m.v, w)
		}
		m.left(w)
	case StateOut:
		if mine {
			m.announce(w, m.v, w)
		}
		m.outside(w)
	}
}

// follow begins the installation of w. Nothing is sent at its epoch, and
// nothing is granted at all, until the engine has stopped granting at the
// epoch before it: only so does "y promises me at e" mean that y is not live
// in an epoch before e.
func (m *Machine) follow(w *View, mine bool) {
	if m.st == StateOut {
		if !m.joined {
			m.fixFileID(w)
		}
		m.st, m.joined = StateMember, true
		if m.join.quit {
			m.st = StateLeaving
			m.leave = leave{since: m.now}
		}
		m.since = m.now
		m.lookAt = never
		m.save(Saved{Was: true, Backoff: min(max(2*m.saved.Backoff, m.p.BackoffMin), m.p.BackoffMax), Epoch: m.saved.Epoch})
	}
	if m.next != nil {
		mine = mine || m.next.mine
	}
	m.next = &install{view: w, mine: mine}
	m.freeze(w)
	if m.bug.speakBeforeFreeze {
		for i := range w.Members {
			if y := m.peers[w.Members[i].Node]; y != nil {
				m.out.Send = append(m.out.Send, Envelope{m.me, y.Node, w.Epoch, HB{T: m.now, Prom: y.prom}})
			}
		}
	}
}

func (m *Machine) freeze(w *View) {
	m.seq++
	m.frozen, m.synced = false, false
	m.out.Freeze = &Freeze{Seq: m.seq, View: w}
}

// onFrozen goes on with what had to wait for the engine.
func (m *Machine) onFrozen(in Frozen) {
	if in.Seq != m.seq {
		return // a later one is under way
	}
	m.frozen = true
	if m.next != nil {
		m.install()
	}
}

// install makes the view that the engine was frozen for the one of this node.
func (m *Machine) install() {
	old, w, mine := m.v, m.next.view, m.next.mine
	m.next = nil
	m.v, m.index = w, w.Index(m.me)
	m.known, m.knownFrom = 0, m.now
	m.disk.missing = 0
	was := m.peers
	m.peers = make(map[Node]*peer, len(w.Members))
	m.order = m.order[:0]
	for i := range w.Members {
		if w.Members[i].Node == m.me {
			continue
		}
		y := &peer{ten: never, two: never, lastAt: never, syncAt: never, rtt: -1, promAt: m.now}
		if x := was[w.Members[i].Node]; x != nil {
			// What is known of its life goes on. What it promised was for
			// the epoch before.
			y.two, y.silent, y.promAt, y.heard, y.lastAt, y.rtt = x.two, x.silent, x.promAt, x.heard, x.lastAt, x.rtt
			y.refuse, y.refuseWhy = x.refuse, x.refuseWhy
			if m.bug.keepTenure {
				y.ten = x.ten
			}
		}
		y.Member = w.Members[i]
		m.peers[y.Node] = y
		m.order = append(m.order, y)
	}
	m.forget(w)
	m.noteChange(old, w)
	m.meetAll(w)
	if mine {
		m.announce(w, old, w)
		m.disk.prune = true
	}
	m.disk.due = m.now
	m.beatAll(true)
	if w.IsRevoked(m.me.Peer) && m.st == StateMember {
		m.leave.then = &End{Code: EndRevoked, Text: revokedText}
		m.beginLeave()
	}
	m.fulfil()
	m.checkSynced()
}

// forget drops what is about nodes that are not in w.
func (m *Machine) forget(w *View) {
	if !m.bug.keepJoiners {
		clear(m.joiners)
	}
	maps.DeleteFunc(m.fences, func(n Node, _ *fence) bool { return !w.Has(n) })
	maps.DeleteFunc(m.dead, func(n Node, _ string) bool { return !w.Has(n) })
}

// announce sends w to the members of both views.
func (m *Machine) announce(w, old, now *View) {
	for i := range now.Members {
		m.sendView(now.Members[i].Node, w)
	}
	for i := range old.Members {
		if !now.Has(old.Members[i].Node) {
			m.sendView(old.Members[i].Node, w)
		}
	}
}

// sendView sends w itself, whose epoch may be above that of v still.
func (m *Machine) sendView(to Node, w *View) {
	if to.Peer != m.me.Peer {
		m.out.Send = append(m.out.Send, Envelope{From: m.me, To: to, Epoch: w.Epoch, Msg: ViewMsg{w}})
	}
}

// expelled: the others went on without this node. What it held is lost.
func (m *Machine) expelled(w *View) {
	why := w.Why(m.me)
	if why == "" {
		why = fmt.Sprintf("not a member of view %d any more", w.Epoch)
	}
	m.out.Expelled = &Expelled{Epoch: w.Epoch, By: w.By, Why: why}
	m.join = join{at: m.now + max(m.saved.Backoff, m.p.BackoffMin)}
	if !m.saved.Was {
		m.save(Saved{Was: true, Backoff: m.saved.Backoff, Epoch: m.saved.Epoch})
	}
}

// outside: w is the newest view known, and this node is not in it.
func (m *Machine) outside(w *View) {
	m.st = StateOut
	m.next, m.synced = nil, false
	m.v, m.index = w, -1
	m.known, m.knownFrom = 0, m.now
	m.peers, m.order = map[Node]*peer{}, m.order[:0]
	m.forget(w)
	m.dropAsk()
	if m.prop == nil { // one of takeOver is open still, and adds this incarnation
		m.newInc()
	}
	m.join.rebase()
	for _, x := range m.wishes {
		m.answer(x, fmt.Errorf("this node was dropped from the view: ask another one, or again"))
	}
	m.wishes = nil
	m.meetAll(w)
	m.checkWanted()
}

func (m *Machine) meetAll(w *View) {
	for i := range w.Members {
		if y := &w.Members[i]; y.Peer != m.me.Peer {
			m.out.Meet = append(m.out.Meet, Contact{y.Peer, y.Addrs})
		}
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

// served forgets the back-off after a time of membership.
func (m *Machine) served() {
	if m.saved.Backoff != 0 && m.now-m.since >= m.p.Served {
		m.save(Saved{Was: true, Epoch: m.saved.Epoch})
	}
}
