package member

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// jump is how far above what this node has known it goes on: others may have
// known more.
const jump = 1000

// behind reports whether this node has known a view above the newest that the
// storage, or anybody, has shown since it started.
func (j *joining) behind() bool {
	return j.view.Epoch < j.memory.saved.Epoch && !j.scans.unreadable()
}

// tryRestored ends this node, or makes a view above all that it has known, when
// two looks show that what it has known is not there any more: one that began
// more than S after the start, since the listing may be S old, and one that began
// as much later, since the clock may have jumped before the first. A look in between
// that failed, or whose listing was not whole, makes them begin anew.
func (j *joining) tryRestored() {
	known := j.memory.saved.Epoch
	late := j.cfg.Self.Cache + j.p.Cap
	switch {
	case j.scans.part:
		j.missed = never
	case j.scans.began < j.memory.began+late || j.scans.newest >= known:
	case j.missed == never:
		j.missed = j.now
	case j.scans.began < j.missed+late:
	case j.quit:
	case j.cfg.Restored:
		w := j.above(known+jump, ReasonRestored, "the storage was restored from a copy")
		w.Timing = j.p.Timing
		j.terms.bring(w)
		j.proposer.propose(w)
	default:
		j.finish(End{Code: EndRestored, Text: fmt.Sprintf("the newest view on the shared storage is %d, but this node has known view %d: was it restored from a backup or a snapshot? "+
			"Fencing tokens that were given since would be given again. Unmount on all hosts that use it, then mount with --restored on this one, and afterwards on the others without", j.scans.newest, known)})
	}
}

// proposeAbove proposes a view above one that cannot be read, of this node alone.
// Members of that one may be alive. They learn of this one, or lose their look
// tenure, while it holds back: see View.Unsure.
func (j *joining) proposeAbove() {
	bad := j.scans.bad
	w := j.above(bad.epoch+1, ReasonUnreadable, bad.Error())
	if len(j.view.Members) == 0 {
		w.Timing = j.p.Timing
	}
	j.terms.bringFileID(w)
	j.proposer.propose(w)
}

// above is a view of this node alone, in a new incarnation.
func (j *joining) above(e locks.Epoch, reason, why string) *View {
	j.draw(j.view)
	j.rebase()
	w := j.view.next(j.me, reason)
	w.Epoch = e
	for _, y := range j.view.Members {
		w.drop(y.Node, why)
	}
	w.add(j.record())
	return w
}

// Again is a view by which a cluster can go on all of whose views are lost, of
// which v is one that self was in. It has self alone, which must be dead, and
// stands above all that anybody is likely to have known. It must not be linked
// before GivenUp.
func (v *View) Again(self string, nonce Inc, made string) (*View, error) {
	w := *v
	w.Epoch, w.Nonce, w.Made = v.Epoch+jump, nonce, made
	w.Reason, w.Unsure = ReasonRestored, false
	w.Members, w.Dropped = nil, nil
	for _, m := range v.Members {
		if m.Peer == self {
			w.Members = []Member{m}
			w.By = m.Node
		}
	}
	if len(w.Members) == 0 {
		return nil, fmt.Errorf("view %d: %s is not in it", v.Epoch, self)
	}
	// The file whose inode number it names is gone.
	if w.FileID != FileIDPath {
		w.FileID = ""
	}
	return &w, w.validate()
}

// GivenUp is how long after the loss of all views, in milliseconds, no member is
// alive, whichever views there were: the last look at them is too old, of whatever
// age the listing was. Every daemon that runs has noticed, and ended.
func (v *View) GivenUp() int64 {
	return lostLimit + v.Timing.CacheMax + 2*v.Timing.LookTenure
}
