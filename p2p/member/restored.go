package member

import (
	"fmt"

	"dmxfs/locks"
)

// The storage can be restored from a backup or a snapshot, with the views as
// they were then. Epochs, and with them fencing tokens, would be given for a
// second time. So every node keeps the newest epoch that it has known, and does
// not join below.

// jump is how far above what this node has known it goes on: others may have
// known more.
const jump = 1000

// saveEpoch keeps the epoch of a view that is known to be linked.
func (m *Machine) saveEpoch(e locks.Epoch) {
	if s := m.saved; e > s.Epoch && !m.bug.forgetEpoch {
		s.Epoch = e
		m.save(s)
	}
}

// behind reports whether this node has known a view above the newest that the
// storage, or anybody, has shown since it started.
func (m *Machine) behind() bool { return m.v.Epoch < m.saved.Epoch && !m.disk.above(m.v) }

// tryRestored ends this node, or makes a view above all that it has known, when
// a look shows that what it has known is not there any more: one that began
// more than S after the start, since the listing may be S old.
func (m *Machine) tryRestored() {
	switch {
	case m.disk.began < m.began+m.cfg.Self.Cache+m.p.Cap || m.disk.newest >= m.saved.Epoch:
	case m.join.quit:
	case m.cfg.Restored:
		m.newInc()
		m.join.rebase()
		w := m.v.next(m.me, ReasonRestored)
		w.Epoch = m.saved.Epoch + jump
		for _, y := range m.v.Members {
			w.drop(y.Node, "the storage was restored from a copy")
		}
		w.Timing = m.p.Timing
		w.add(m.self())
		m.bring(w)
		m.propose(w)
	default:
		m.finish(End{Code: EndRestored, Text: fmt.Sprintf("the newest view on the shared storage is %d, but this node has known view %d: was it restored from a backup or a snapshot? "+
			"Fencing tokens that were given since would be given again. Unmount on all hosts that use it, then mount with --restored on this one, and afterwards on the others without", m.disk.newest, m.saved.Epoch)})
	}
}

// unsureCache is how old the listings may be that members of views rely on
// which are not known. After a restore that is those of this node: the admin
// says that nobody else uses the storage.
func (m *Machine) unsureCache() int64 {
	if m.v.Reason == ReasonRestored && m.v.By == m.me {
		return m.cfg.Self.Cache
	}
	return m.v.Timing.CacheMax
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
