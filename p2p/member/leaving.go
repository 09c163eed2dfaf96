package member

// leaving takes a member out of the view that wants to go.
type leaving struct {
	*position
	memory   *memory
	engine   *engine
	scans    *scans
	proposer *proposer

	waited waking // since it wants to
	then   *End   // what the machine ends with; nil: it has left as wished
	back   bool   // it comes back: join again after it has left
}

// leaveLimit is how long a node waits, in milliseconds, for the storage to
// take its leave. Then the others drop it.
const leaveLimit = 5000

// begin stops granting; the view without this node is proposed when the
// engine has stopped too and no proposal of this node is open.
func (l *leaving) begin() {
	l.leave()
	l.waited = l.sinceNow()
	if !l.engine.frozen && l.next == nil {
		l.engine.freeze(nil)
	}
}

// beginFor begins, and ends the machine with e.
func (l *leaving) beginFor(e *End) {
	l.then = e
	l.begin()
}

// beginBack begins, and comes back.
func (l *leaving) beginBack() {
	l.back = true
	l.begin()
}

// joined: this node wanted to go when it was about to join.
func (l *leaving) joined() {
	l.leave()
	l.reset()
	l.waited = l.sinceNow()
}

// forGood: it does not come back.
func (l *leaving) forGood() { l.back = false }

func (l *leaving) reset() { l.waited, l.then, l.back = waking{}, nil, false }

func (l *leaving) wake() {
	if l.state == StateLeaving {
		l.waited.tick(l.base)
	}
}

// try is called after every input of a node that leaves.
func (l *leaving) try() {
	if l.waited.ms >= leaveLimit && !l.back {
		l.end("the storage did not take the leave in time: the others drop this node when its tenure is over")
		return
	}
	if l.proposer.open != nil || l.next != nil || !l.engine.frozen || l.scans.unreadable() {
		return
	}
	l.proposer.propose(l.without(ReasonLeave, []Node{l.me}, func(Node) string { return "left" }))
}

// end ends the machine.
func (l *leaving) end(text string) {
	l.memory.left()
	if l.then != nil {
		l.finish(*l.then)
		return
	}
	l.finish(End{Code: EndLeft, Text: text})
}
