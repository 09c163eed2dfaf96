package member

import "github.com/dmxfs/dmxfs/locks"

// storage chooses the next operation on the shared storage: one at a time.
type storage struct {
	*position
	memory    *memory
	proposer  *proposer
	asking    *asking
	answering *answering

	busy   Op    // the one operation under way
	lookAt int64 // when a look is due
	wrote  bool  // the last operation was not a look
	prune  bool  // this node made the view: it cleans up
}

// lookSoon has the directory of views looked at as soon as may be, lookLater
// after a look that failed.
func (s *storage) lookSoon()  { s.lookAt = s.now }
func (s *storage) lookLater() { s.lookAt = s.now + s.p.Retry }

// cleanUp has files removed that the view makes superfluous.
func (s *storage) cleanUp() { s.prune = true }

// ended is the operation that was under way.
func (s *storage) ended() Op {
	op := s.busy
	s.busy = nil
	return op
}

// next starts the next operation, if none is under way and one is due.
func (s *storage) next() {
	if s.busy != nil {
		return
	}
	if s.busy = s.choose(); s.busy == nil {
		return
	}
	_, look := s.busy.(LookOp)
	s.wrote = !look
	s.out.Storage = s.busy
}

// choose is the operation that is due; nil if none is.
func (s *storage) choose() Op {
	p := s.proposer.open
	// Neither looks nor writes may starve when each takes longer than it should.
	lookFirst := s.wrote && s.now >= s.lookAt
	switch {
	case p != nil && p.stage == stageLink && s.now >= p.at:
		return LinkOp{View: p.view, File: p.file, Claim: p.claim}
	case p != nil && p.stage != stageLink && s.now >= p.at, lookFirst:
		return s.look()
	case len(s.answering.due) > 0 && s.state != StateOut:
		return s.answering.next()
	case s.state == StateOut && s.asking.unposted():
		return s.asking.post()
	case s.now >= s.lookAt:
		return s.look()
	case s.asking.old() >= 0:
		return s.asking.remove()
	case s.prune && p == nil:
		s.prune = false
		if e := s.view.Epoch; uint64(e) > s.p.Keep {
			return PruneOp{Below: e - locks.Epoch(s.p.Keep)}
		}
		return PruneOp{} // old asks and the like
	}
	return nil
}

func (s *storage) look() LookOp {
	interval := s.p.Look
	if s.state == StateOut {
		interval = s.p.LookOut
	}
	s.lookAt = s.now + interval
	known := s.top().Epoch
	return LookOp{Known: known, Linked: max(known, s.memory.saved.Epoch), Asks: s.state != StateOut, For: s.asking.from()}
}
