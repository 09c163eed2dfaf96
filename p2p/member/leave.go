package member

// leave is the state of a member that wants to go.
type leave struct {
	since  int64
	waited int64 // waking time since
	then   *End  // what the machine ends with; nil: it has left as wished
	back   bool  // it comes back: join again after it has left
}

// leaveLimit is how long a node waits, in milliseconds, for the storage to
// take its leave. Then the others drop it.
const leaveLimit = 5000

// onLeave begins to leave, as an admin or a signal wants it.
func (m *Machine) onLeave() {
	switch m.st {
	case StateOut:
		m.quit()
	case StateMember:
		m.beginLeave()
		if m.bug.leaveForgets {
			m.prop = nil
		}
	case StateLeaving:
		m.leave.back = false
	}
}

// quit: a node that has not joined takes its HELLO back. A view that adds it
// may be on its way: then it leaves as a member does.
func (m *Machine) quit() {
	j := &m.join
	if j.quit {
		return
	}
	j.quit, j.quitAt = true, m.now
	m.dropAsk()
	if m.prop == nil && !j.ready {
		m.finish(End{Code: EndLeft, Text: "left before it had joined"})
		return
	}
	for i := range m.v.Members {
		m.send(m.v.Members[i].Node, m.hello(false))
	}
}

// beginLeave stops granting; the view without this node is proposed when the
// engine has stopped too and no proposal of this node is open.
func (m *Machine) beginLeave() {
	m.st = StateLeaving
	m.leave.since, m.leave.waited = m.now, 0
	if !m.frozen && m.next == nil {
		m.freeze(nil)
	}
}

func (l *leave) wake(m *Machine) {
	if m.st == StateLeaving {
		l.waited += m.awake(l.since)
	}
}

// tryLeave is called after every input of a node that leaves.
func (m *Machine) tryLeave() {
	if m.leave.waited >= leaveLimit && !m.leave.back {
		m.finishLeave("the storage did not take the leave in time: the others drop this node when its tenure is over")
		return
	}
	if m.prop != nil || m.next != nil || !m.frozen || m.disk.above(m.v) {
		return
	}
	m.propose(m.without(ReasonLeave, []Node{m.me}, func(Node) string { return "left" }))
}

// left: a view without this node is known.
func (m *Machine) left(w *View) {
	if m.leave.back {
		m.leave = leave{}
		m.join.at = m.now + m.p.BackoffMin
		m.outside(w)
		m.join.askAt = m.now + m.p.BackoffMax
		return
	}
	m.finishLeave("")
}

func (m *Machine) finishLeave(text string) {
	m.save(Saved{Epoch: m.saved.Epoch})
	if m.leave.then != nil {
		m.finish(*m.leave.then)
		return
	}
	m.finish(End{Code: EndLeft, Text: text})
}
