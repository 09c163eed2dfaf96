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

// twin is a member of the newest view that is another incarnation of this peer
// and may be alive; nil if there is none.
func (m *Machine) twin() *Member {
	if m.bug.noTwins || !m.cfg.Bury.IsZero() {
		return nil
	}
	for i := range m.v.Members {
		if y := &m.v.Members[i]; y.Peer == m.me.Peer && m.isTwin(y.Node) && m.howDead(y.Node) == "" {
			return y
		}
	}
	return nil
}

// isTwin reports whether n is of this peer and not of this process.
func (m *Machine) isTwin(n Node) bool {
	return n.Peer == m.me.Peer && n != m.me
}

// offline is [Output.Offline]. Before the first look nobody knows whether there
// is a twin.
func (m *Machine) offline() bool {
	j := &m.join
	return m.st == StateOut && !m.bug.noTwins && m.cfg.Bury.IsZero() && (!m.disk.seen || j.over != nil || !j.online && m.twin() != nil)
}

// awaitTwin asks on the storage for a twin, and reports whether this node has to
// wait for what comes of it.
func (m *Machine) awaitTwin() bool {
	j := &m.join
	if j.over != nil {
		// The ask is taken back first: nobody else would do it soon.
		if len(m.disk.asks) == 0 || m.now-j.overAt >= m.p.Polite {
			m.finish(*j.over)
		}
		return true
	}
	y := m.twin()
	if y == nil || j.online {
		return false
	}
	switch {
	case j.ask == nil:
		if m.now >= j.askAt {
			j.ask = m.newAsk(true)
		}
	case j.ask.others:
		// They may all have died since: then it has to be asked again. The
		// twin has had its time to answer.
		if m.unanswered(m.p.Polite + 2*j.ask.cache) {
			m.leaveToOthers()
		}
	case m.unanswered(m.p.Polite + 2*j.ask.cache):
		j.online = true
		return false
	}
	m.noteWaiting("%s has the identity of this node: waiting for its answer, or until the others have dropped it", y.Name())
	return true
}

// twinIsHeeded takes answers to an ask that was about a twin, and reports
// whether it was.
func (m *Machine) twinIsHeeded(answers []Answer) bool {
	j := &m.join
	i := slices.IndexFunc(answers, func(a Answer) bool { return m.isTwin(a.Node) })
	switch {
	case i >= 0 && m.st == StateOut && m.prop == nil:
		j.over, j.overAt = twinEnd(answers[i]), m.now
		m.dropAsk()
	case i >= 0 && m.st == StateMember && m.next == nil && m.prop == nil && m.twin() != nil:
		// The answer came late, and this node has added itself. It goes again.
		m.leave.then = twinEnd(answers[i])
		m.dropAsk()
		m.beginLeave()
	case i >= 0: // what is under way comes first
	case j.ask.c.Own:
		// The ask stays: the twin may be slower than they are.
		j.ask.others, j.online = true, false
	default:
		return false
	}
	return true
}

// leaveToOthers: members are alive. They drop the twin, if it is dead. If it is
// not it is asked once more.
func (m *Machine) leaveToOthers() {
	m.dropAsk()
	m.join.online = false
}

func twinEnd(a Answer) *End {
	at := ""
	if len(a.Addrs) > 0 {
		at = " at " + strings.Join(a.Addrs, " ")
	}
	return &End{Code: EndTwin, Answers: []Answer{a}, Text: fmt.Sprintf("%s%s is a member with the identity of this node (%s), and stays it: "+
		"the state directory was copied, or the machine was cloned with it", a.Host, at, a.Node.Peer)}
}

// noteTwin tells the log of a process that asks with this node's identity.
func (m *Machine) noteTwin(c Challenge) {
	m.note(Refusing, c.Node, c.Host, "%s was started with the identity of this node (%s), and is refused: its state directory is a copy, or its machine a clone", c.Host, c.Node.Peer)
}
