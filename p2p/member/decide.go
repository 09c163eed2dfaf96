package member

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// fence is how far a node is with being kept from the storage. While it is
// asked for, and for good once it is done, the node is promised nothing.
type fence struct {
	dead    bool // by syncfs, not by the fence command
	asked   bool
	done    bool
	retryAt int64
}

// joiner is a newcomer that this node has welcomed at this epoch.
type joiner struct {
	member  Member
	ready   int64 // since when it has all welcomes; never: it has not
	lastAt  int64
	refused Refusal // why it cannot join; 0: it can
}

// decide proposes the next view, if one is needed. A member drops those that
// are not live in any epoch, does what admins want, and adds newcomers.
func (m *Machine) decide() {
	if m.prop != nil || m.next != nil || m.holding() || m.disk.above(m.v) {
		return
	}
	if dead := m.deadMembers(); len(dead) > 0 && m.fenceAll(dead, true) {
		m.propose(m.without(ReasonReplace, dead, m.howDead))
		return
	}
	gone, wait := m.silentMembers()
	switch {
	case len(gone) > 0 && !wait:
		if m.cfg.HasFence && !m.fenceAll(gone, false) {
			return
		}
		reason := ReasonDrop
		if slices.ContainsFunc(gone, func(n Node) bool { return m.peers[n].refuse }) {
			reason = ReasonAdmin
		}
		m.propose(m.without(reason, gone, m.howSilent))
	case len(gone) > 0:
	case m.grantWishes():
	default:
		m.sponsor()
	}
}

// silentMembers are those that rule Drop allows to drop, and whether to wait
// before it is done.
//
// The rule: y is live in no epoch. Not at this one or one before it that this
// node was in: it has promised y nothing for L + delta. Nor in one before
// this node's first: y has spoken to it at an epoch with both in; or this view
// is known for so long that y's last look, had it not shown it, is too old.
func (m *Machine) silentMembers() (gone []Node, wait bool) {
	var over int64
	cut, soon := 0, false
	for _, y := range m.order {
		if y.heard && y.silent >= m.p.Hears {
			cut++
		}
		by, ok := m.silentFor(y)
		switch {
		case ok && by >= 0:
			gone = append(gone, y.Node)
			over = max(over, by)
		case ok && by >= -2*m.p.Heartbeat:
			soon = true
		}
	}
	if len(gone) == 0 {
		return nil, false
	}
	// The side with more members goes on: who has lost more waits longer. Of
	// several, the first in the view. Members fall silent up to a heartbeat
	// apart, so those that are nearly due are waited for.
	patience := int64(0)
	if cut > 0 {
		patience = min(m.p.WaitMax, m.p.Slope*int64(cut-1)/int64(len(m.order)))
	}
	patience += 50 * int64(min(m.index, 10))
	return gone, over < patience || soon && over < 2*m.p.Heartbeat
}

// silentFor is by how much y is over the limits of rule Drop (negative: how
// much is missing); ok is false while y might be live in an epoch that this
// node was not in.
func (m *Machine) silentFor(y *peer) (by int64, ok bool) {
	lim := m.p.Tenure + m.p.Delta
	if m.bug.noDelta {
		lim = m.p.Tenure
	}
	by = y.silent - lim
	if y.heard || m.bug.dropUnproved {
		return by, true
	}
	over := m.known - (m.p.LookTenure + m.p.lookMargin() + y.Cache)
	return min(by, over), over >= 0
}

// deadMembers are those that are proved to be dead.
func (m *Machine) deadMembers() []Node {
	var dead []Node
	for i := range m.v.Members {
		if y := &m.v.Members[i]; m.howDead(y.Node) != "" {
			dead = append(dead, y.Node)
		}
	}
	return dead
}

// howDead is the proof that a member is dead; empty if there is none. A former
// life of this node is dead if it held the lock that this one holds now, in
// the same boot of the same kernel. Another boot ID is no proof: the state
// directory may be a copy. See isFormer.
func (m *Machine) howDead(n Node) string {
	if n == m.me {
		return ""
	}
	if how := m.dead[n]; how != "" {
		return how
	}
	if n == m.cfg.Bury {
		return "its process has ended"
	}
	i := m.v.Index(n)
	if i < 0 {
		return ""
	}
	y, s := &m.v.Members[i], &m.cfg.Self
	if y.Boot == s.Boot && y.Boot != "" && y.Lock == s.Lock && y.Lock != (LockFile{}) && m.isFormer(y) {
		return "it was restarted"
	}
	if m.bug.replaceAnybody && m.st == StateOut && y.Peer != m.me.Peer {
		return "a planted bug"
	}
	return ""
}

func (m *Machine) howSilent(n Node) string {
	y := m.peers[n]
	if y.refuse {
		return y.refuseWhy
	}
	return fmt.Sprintf("silent for %d ms", y.silent)
}

// without is the next view, without some members.
func (m *Machine) without(reason string, nodes []Node, why func(Node) string) *View {
	w := m.v.next(m.me, reason)
	for _, n := range nodes {
		w.drop(n, why(n))
	}
	return w
}

// fenceAll reports whether all nodes are fenced, and has that done where it is
// not. A node is promised nothing from the moment that it is asked for.
func (m *Machine) fenceAll(nodes []Node, dead bool) bool {
	all := true
	for _, n := range nodes {
		f := m.fences[n]
		if f == nil || f.dead != dead && !f.done && !f.asked {
			f = &fence{dead: dead, retryAt: m.now}
			m.fences[n] = f
		}
		if !f.done {
			all = false
		}
		if !f.done && !f.asked && m.now >= f.retryAt {
			f.asked = true
			m.out.Fence = append(m.out.Fence, Fence{Node: n, Member: m.v.Members[m.v.Index(n)], Dead: dead})
		}
	}
	return all
}

func (m *Machine) fencing(n Node) bool {
	f := m.fences[n]
	return f != nil && (f.asked || f.done)
}

// onFenced notes what came of a fence. One that failed leaves the node in the
// view: what it may still write must not meet the next holder's.
func (m *Machine) onFenced(in Fenced) {
	f := m.fences[in.Node]
	if f == nil || !f.asked {
		return
	}
	f.asked = false
	if in.Err == nil {
		f.done = true
		return
	}
	f.retryAt = m.now + m.p.Tenure
	i := m.v.Index(in.Node)
	if i < 0 {
		return
	}
	m.note(Fencing, in.Node, m.v.Members[i].Host, "%s cannot be fenced, so its locks stay: %v", m.v.Members[i].Name(), in.Err)
}

// propose begins to link w. From here on nobody outside of w is promised
// anything; refusing comes before the link, which may be carried out at any
// time from now.
func (m *Machine) propose(w *View) {
	if w.Epoch > MaxEpoch {
		m.noteWaiting("the cluster has used up its %d epochs: stop all nodes and remove .dmxfs to begin anew", MaxEpoch)
		return
	}
	w.Nonce = Inc(m.cfg.Random())
	w.Made = m.cfg.Made()
	w.Protocol = Protocol
	w.Unsure = w.Reason == ReasonUnreadable || w.Reason == ReasonRestored || m.holding()
	file, err := EncodeView(w)
	if err != nil {
		m.noteWaiting("a view cannot be written: %v", err)
		return
	}
	m.prop = &proposal{view: w, file: file, at: m.now}
}

// onHello: a newcomer asks to be welcomed at this epoch.
func (m *Machine) onHello(h Hello) {
	n := h.Member.Node
	j := m.joiners[n]
	if j == nil {
		if len(m.joiners) >= MaxMembers {
			return // it asks again, and those that are silent are forgotten
		}
		j = &joiner{ready: never}
		m.joiners[n] = j
		m.out.Meet = append(m.out.Meet, Contact{n.Peer, h.Member.Addrs})
	}
	j.member, j.lastAt = h.Member, m.now
	if code, why := m.refusal(h); code != 0 {
		if j.refused != code {
			m.note(Refusing, n, h.Member.Host, "%s was refused: %s", h.Member.Name(), why)
		}
		j.refused, j.ready = code, never
		m.send(n, Refused{Code: code, Text: clipText(why, MaxWhy)})
		return
	}
	switch {
	case !h.Ready:
		j.ready = never
	case j.ready == never:
		j.ready = m.now
	}
	j.refused = 0
	m.send(n, Welcome{})
}

// refusal is why a newcomer cannot join; the code is 0 if it can.
func (m *Machine) refusal(h Hello) (Refusal, string) {
	switch {
	case m.v.IsRevoked(h.Member.Peer):
		return RefusedRevoked, revokedText
	case !m.v.Timing.same(h.Timing):
		return RefusedTiming, timingText(m.v.Timing, h.Timing)
	case h.Member.Cache > m.v.Timing.CacheMax:
		return RefusedTiming, cacheText(m.v.Timing, h.Member.Cache)
	case !m.v.Policy.Serves(h.Policy):
		return RefusedPolicy, policyText
	case !m.v.agrees(h.FileID) && !m.bug.anyFileID:
		return RefusedFileID, fileIDText(m.v.FileID, h.FileID)
	case len(m.v.Members) >= MaxMembers:
		return RefusedFull, fmt.Sprintf("the cluster has %d members, and cannot have more", MaxMembers)
	}
	return 0, ""
}

// sponsor adds the newcomers that all members have welcomed. The first member
// does it at once, the others one after another should it not.
func (m *Machine) sponsor() {
	w := m.v.next(m.me, ReasonJoin)
	delay := 200 + 500*int64(min(m.index, 4))
	for _, n := range m.joinerNodes() {
		j := m.joiners[n]
		if m.now-j.lastAt > m.p.Hears {
			delete(m.joiners, n)
			continue
		}
		if j.ready != never && m.now-j.ready >= delay && len(w.Members) < MaxMembers && !w.HasPeer(n.Peer) {
			w.add(j.member)
		}
	}
	if len(w.Members) > len(m.v.Members) {
		m.propose(w)
	}
}

// joinerNodes are the newcomers, in an order that does not depend on the map.
func (m *Machine) joinerNodes() []Node {
	return slices.SortedFunc(maps.Keys(m.joiners), Node.Compare)
}

// A wish is an admin's that waits for its view, or for its deadline.
type wish struct {
	Wish
	what   string
	done   func(v *View) bool
	change func(w *View) // nil: nothing to propose
	reason string
}

func (m *Machine) onRemove(in Remove) {
	w := wish{Wish: in.Wish, what: "the removal of " + in.Node.Peer, done: func(v *View) bool { return !v.Has(in.Node) }}
	if in.Node == m.me {
		m.answer(w, errors.New("a node cannot remove itself: unmount it"))
		return
	}
	if !m.v.Has(in.Node) {
		m.answer(w, fmt.Errorf("%s is not a member", in.Node.Peer))
		return
	}
	if m.wish(w) {
		// Who is refused has no tenure any more, and is dropped like one
		// that is silent: nothing is faster without a proof of death.
		if y := m.peers[in.Node]; y != nil {
			y.refuse, y.refuseWhy = true, "removed by an admin"
			if in.Why != "" {
				y.refuseWhy += ": " + in.Why
			}
		}
	}
}

func (m *Machine) onRevoke(in Revoke) {
	w := wish{Wish: in.Wish, what: "the revocation of " + in.Peer, reason: ReasonAdmin}
	w.done = func(v *View) bool { return v.IsRevoked(in.Peer) != in.Undo }
	w.change = func(v *View) {
		list := slices.DeleteFunc(slices.Clone(v.Revoked), func(p string) bool { return p == in.Peer })
		if !in.Undo {
			list = append(list, in.Peer)
			slices.Sort(list)
		}
		v.Revoked = list
	}
	switch {
	case !ValidPeer(in.Peer):
		m.answer(w, fmt.Errorf("%q is not a peer ID", in.Peer))
	case !in.Undo && len(m.v.Revoked) >= MaxRevoked && !m.v.IsRevoked(in.Peer):
		m.answer(w, fmt.Errorf("%d peers are revoked, and no more can be: change the secret (dmxfs secret rotate), which keeps them out as well, and let them in again (dmxfs peers revoke --undo)", MaxRevoked))
	default:
		m.wish(w)
	}
}

func (m *Machine) onSetPolicy(in SetPolicy) {
	w := wish{Wish: in.Wish, what: "the change of the policy", reason: ReasonPolicy}
	w.done = func(v *View) bool { return v.Policy.Hash == in.Policy.Hash }
	w.change = func(v *View) { v.Policy = v.Policy.change(in.Policy) }
	if err := in.Policy.validate(); err != nil {
		m.answer(w, err)
		return
	}
	m.wish(w)
}

// wish takes a wish in and reports whether it did.
func (m *Machine) wish(w wish) bool {
	switch {
	case m.st != StateMember:
		m.answer(w, errors.New("this node is not a member"))
	case w.done(m.v):
		m.answer(w, nil)
	case len(m.wishes) >= 64:
		m.answer(w, errors.New("too many changes are waiting: try again later"))
	default:
		m.wishes = append(m.wishes, w)
		return true
	}
	return false
}

func (m *Machine) answer(w wish, err error) {
	m.out.Answers = append(m.out.Answers, Answered{w.ID, err})
}

// grantWishes proposes a view for what admins want, and reports whether it did.
// Only a live node does: the change may have to wait, but the others do not.
func (m *Machine) grantWishes() bool {
	if len(m.wishes) == 0 || m.now >= m.liveUntil() {
		return false
	}
	for _, x := range m.wishes {
		if x.change != nil { // one after another: two may contradict each other
			w := m.v.next(m.me, x.reason)
			x.change(w)
			m.propose(w)
			return m.prop != nil
		}
	}
	return false
}

// fulfil answers the wishes that the present view fulfils.
func (m *Machine) fulfil() {
	m.wishes = slices.DeleteFunc(m.wishes, func(w wish) bool {
		if w.done(m.v) {
			m.answer(w, nil)
			return true
		}
		return false
	})
	for _, y := range m.order {
		if m.v.IsRevoked(y.Peer) && !m.bug.promiseWhileProposing {
			y.refuse, y.refuseWhy = true, "revoked by an admin"
		}
	}
}

func (m *Machine) expireWishes() {
	m.wishes = slices.DeleteFunc(m.wishes, func(w wish) bool {
		if m.now < w.Deadline {
			return false
		}
		m.answer(w, fmt.Errorf("%s has not come about in time; it may still: look at the peers", w.what))
		return true
	})
}
