package member

import "fmt"

// joining gets a node into the view.
type joining struct {
	*position
	memory     *memory
	proofs     *proofs
	succession *succession
	fences     *fences
	scans      *scans
	proposer   *proposer
	asking     *asking
	twins      *twins
	mail       *mail
	terms      *terms
	welcomes   *welcomes

	at     int64 // not before: back-off
	quit   bool  // the node wants to leave before it has joined
	quitAt int64
	missed int64 // when a look first did not show a view that this node has known; or never
}

func (j *joining) start() {
	// A process that starts does not wait: whoever starts it again and again
	// makes pauses, and where all have died it would be added to the wait for
	// the tenures of the dead.
	j.at = j.now
	j.missed = never
	j.draw(j.view)
	j.rebase()
}

// pause has the node wait before it joins again.
func (j *joining) pause(d int64) { j.at = j.now + d }

// expelled begins anew, after a pause.
func (j *joining) expelled() {
	j.pause(j.memory.pause())
	j.quit, j.quitAt = false, 0
	j.asking.expelled()
	j.twins.expelled()
}

// rebase begins again at a new base.
func (j *joining) rebase() {
	j.welcomes.rebase()
	j.twins.rebase()
}

// leave: a node that has not joined takes its HELLO back. A view that adds it
// may be on its way: then it leaves as a member does.
func (j *joining) leave() {
	if j.quit {
		return
	}
	j.quit, j.quitAt = true, j.now
	j.asking.drop()
	if j.proposer.open == nil && !j.welcomes.ready {
		j.finish(End{Code: EndLeft, Text: "left before it had joined"})
		return
	}
	j.welcomes.takeBack()
}

// tick ends what has waited too long outside.
func (j *joining) tick() {
	if j.quit && (j.proposer.open == nil && j.now-j.quitAt >= 2*j.p.Heartbeat || j.now-j.quitAt >= leaveLimit) {
		j.finish(End{Code: EndLeft, Text: "left before it had joined"})
	}
}

// try does what a node outside can do at this moment to get in. It is
// called after every input.
func (j *joining) try() {
	if j.proposer.open != nil || !j.scans.seen || j.quit {
		return
	}
	if j.behind() {
		j.tryRestored()
		return
	}
	j.missed = never
	early := j.now < j.at
	if j.scans.unreadable() {
		if !early && j.cfg.Bury.IsZero() {
			j.welcomes.ask() // who can read that view sends it
		}
		return
	}
	if dead := j.proofs.members(); len(dead) > 0 {
		// The locks of the dead come free now. A short pause is left out: it
		// keeps nobody from anything, and a node that has to join on its own
		// takes longer.
		w := j.without(ReasonReplace, dead, j.proofs.how)
		if j.at-j.now <= 2*j.p.Heartbeat && j.cfg.Bury.IsZero() && j.twins.present() == nil && j.twins.over == nil {
			w.add(j.record())
			j.terms.bring(w)
		}
		if j.fences.stand(j.succession.others(dead, w), true) {
			j.proposer.propose(w)
			j.proposer.claim(j.succession.claim(w))
			return
		}
	}
	if !j.cfg.Bury.IsZero() {
		if !j.view.Has(j.cfg.Bury) {
			j.finish(End{Code: EndLeft, Text: "the dead node is not in the view"})
		}
		return
	}
	if early || j.twins.wait() {
		return
	}
	if len(j.view.Members) == 0 {
		j.found()
		return
	}
	if j.tryGiveUp() {
		return
	}
	j.welcomes.ask()
	j.tryAsking()
	j.checkPartial()
}

// found begins a cluster, or goes on with one that all members have left.
func (j *joining) found() {
	w := j.view.next(j.me, ReasonJoin)
	w.Timing = j.p.Timing
	w.add(j.record())
	j.terms.bring(w)
	j.proposer.propose(w)
}

// refused ends a node that a member has refused, unless what is in the way may pass.
func (j *joining) refused(from Node, r Refused) {
	y := &j.view.Members[j.view.Index(from)]
	if end := j.terms.refused(y, r, j.memory.saved.Was); end != nil {
		j.finish(*end)
		return
	}
	j.noteWaiting("refused by %s: %s", y.Name(), r.Text)
}

// tryAsking asks on the storage whether anybody is there, when no member
// can be heard; and joins without a welcome when nobody answers.
func (j *joining) tryAsking() {
	if !j.welcomes.silent() {
		if j.twins.present() != nil {
			j.twins.leaveToOthers()
			return
		}
		j.asking.drop()
		return
	}
	ask := j.asking.ask
	if ask == nil {
		// Members in reach answer a HELLO sooner than that; then nothing
		// has to be written.
		if j.now-j.welcomes.since >= j.p.Heartbeat/2 {
			j.asking.begin(false)
		}
		return
	}
	if ask.answered != nil {
		return // somebody is there
	}
	patience := j.p.Polite + 2*ask.cache
	if ask.c.Own { // the network was not tried before that
		patience += 2 * j.p.Heartbeat
	}
	if j.asking.unanswered(patience) {
		w := j.view.next(j.me, ReasonJoin)
		if len(w.Members) >= MaxMembers {
			j.finish(End{Code: EndRefused, Text: fmt.Sprintf("the cluster has %d members that do not answer, and cannot have more", MaxMembers)})
			return
		}
		w.add(j.record())
		j.terms.bring(w)
		j.proposer.propose(w)
	}
}

// answered: members are alive, and this node, which is outside, hears none of
// them. What a first start ends with is end.
func (j *joining) answered(end End) {
	if j.proposer.open != nil || !j.welcomes.silent() {
		return
	}
	if !j.memory.saved.Was {
		j.asking.endWith(end)
		return
	}
	j.asking.dropFor(j.p.BackoffMax)
	j.noteWaiting("%s", end.Text)
}

// tryGiveUp ends a first start that members have answered on the storage, when
// it has had as much time to reach one over the network as it would have given
// them: a connection may take longer than a look.
func (j *joining) tryGiveUp() bool {
	ask := j.asking.ask
	if ask == nil || ask.answered == nil || ask.age.ms < j.p.Polite {
		return false
	}
	j.finish(*ask.answered)
	return true
}

// checkPartial: a newcomer that only some members hear is not admitted, or the
// others would drop it at once, and again, and again.
func (j *joining) checkPartial() {
	missing, text := j.welcomes.partial()
	switch {
	case missing == nil:
	case !j.memory.saved.Was:
		j.finish(End{Code: EndPartial, Text: text, Nodes: missing})
	default:
		j.noteWaiting("%s", text)
	}
}
