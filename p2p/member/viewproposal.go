package member

// proposer tries to link the next view.
type proposer struct {
	*position
	open *proposal // nil: none is under way
}

// proposal is a view that this node tries to link. From its making until a
// view of its epoch or above is known, nobody outside of it is promised anything.
type proposal struct {
	view  *View
	file  []byte
	claim []Node // LinkOp.Claim
	stage stage
	at    int64 // when the stage may go on
}

type stage uint8

const (
	stageLink    stage = iota // to be linked
	stageLooking              // linked: a look has to show it
	stageUnknown              // the link failed, perhaps: a look has to tell
)

// propose begins to link w, for which storage.choose makes a LinkOp that the driver has
// register.Dir do. From here on nobody outside of w is promised anything; refusing
// comes before the link, which may be carried out at any time from now.
func (p *proposer) propose(w *View) {
	if w.Epoch > MaxEpoch {
		p.noteWaiting("the cluster has used up its %d epochs: stop all nodes and remove .dmxfs to begin anew", MaxEpoch)
		return
	}
	w.Nonce = Inc(p.cfg.Random())
	w.Made = p.cfg.Made()
	w.Protocol = Protocol
	w.Unsure = w.Reason == ReasonUnreadable || w.Reason == ReasonRestored || p.holding()
	file, err := EncodeView(w)
	if err != nil {
		p.noteWaiting("a view cannot be written: %v", err)
		return
	}
	p.open = &proposal{view: w, file: file, at: p.now}
}

// claim has the link of the view that was proposed claim a place by these nodes.
func (p *proposer) claim(by []Node) {
	if p.open != nil {
		p.open.claim = by
	}
}

// proposed is the view that this node tries to link; nil if there is none.
func (p *proposer) proposed() *View {
	if p.open == nil {
		return nil
	}
	return p.open.view
}

// leavesOut reports whether n is not in the view that this node tries to link.
func (p *proposer) leavesOut(n Node) bool { return p.open != nil && !p.open.view.Has(n) }

// learned: w is linked. If that decides the proposal, who was refused because
// of it has been dropped, or may be promised to again. It reports whether w is
// the one proposed.
func (p *proposer) learned(w *View) (mine bool) {
	if p.open == nil || w.Epoch < p.open.view.Epoch {
		return false
	}
	mine = p.open.view.same(w)
	p.open = nil
	return mine
}

func (p *proposer) forget() { p.open = nil }

// linked: the link was tried. Even if it worked it is believed only when a
// look that begins after it shows the view as the newest: the name may have
// been one that was pruned. If it failed it may have worked all the same, or
// work later, so that the same link is tried until a view of its epoch, or
// above, is known.
func (p *proposer) linked(op LinkOp, err error) {
	o := p.open
	if o == nil || !o.view.same(op.View) {
		return // its outcome is known already
	}
	o.stage, o.at = stageLooking, p.now
	if err != nil {
		o.stage = stageUnknown
	}
}

func (p *proposer) lookFailed() {
	if p.open != nil && p.open.stage != stageLink {
		p.open.at = p.now + p.p.Retry
	}
}

// looked takes what a look saw, and returns the view that it shows to be
// linked, if that is above this node's; mine: it is the one proposed.
func (p *proposer) looked(l Look) (w *View, mine bool) {
	newer := l.View != nil && l.View.Epoch > p.top().Epoch
	o := p.open
	switch {
	case o == nil && !newer:
	case newer && (o == nil || !l.View.same(o.view)):
		return l.View, false // it lost, if there is one
	case newer && l.Newest == l.View.Epoch:
		return l.View, true
	case newer:
		o.at = p.now + p.p.Retry // something above it cannot be read
	case o.stage != stageLink:
		// The listing is older than the link, or the link has not been
		// carried out, or what has the name cannot be read.
		o.at = p.now + p.p.Retry
		if o.stage == stageUnknown && l.Newest < o.view.Epoch {
			o.stage = stageLink
		}
	}
	return nil, false
}
