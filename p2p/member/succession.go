package member

import "slices"

// succession is whether this node takes the place of its former self, whose
// process it is: the daemon was replaced, and what programs hold goes on.
//
// The former self is silent since its engine was frozen for good, and until it is
// dropped nobody grants anything that it holds: it is a member of every view, and
// no view goes on without its SYNC, which would say the same. So what it held
// counts as held by this node if there is no view in between: the one that drops
// it adds this node, whose SYNC says what the former self's would have said. That
// view can only be this node's own: nobody else drops the one and adds the other
// at once. In every other case somebody may have been granted what it held.
//
// A daemon that was killed says nothing any more either, and what it held is in its
// ledger. Its successor may be killed, too, when its view is linked and its own ledger
// does not name it yet. Then it has said nothing at that view, and so nobody grants
// anything by it. The third takes the place of whichever of them is in the view: it
// knows them all, since each was written down before its link was tried. See [Heir].
type succession struct {
	*position
	memory  *memory
	heir    *Heir
	claimed []Node // the place, Heir.Claimed and incarnations of this process
	over    bool   // it is decided, or there is none
}

// pending reports whether n is a former self that may still be succeeded.
func (s *succession) pending(n Node) bool { return !s.over && s.heir.has(n) }

// former is the member of v whose place this node takes; zero if there is none.
func (s *succession) former(v *View) Node {
	for i := range v.Members {
		if n := v.Members[i].Node; s.heir.has(n) {
			return n
		}
	}
	return Node{}
}

// claim is LinkOp.Claim of w, which this node has just proposed.
func (s *succession) claim(w *View) []Node {
	if s.over || !w.Has(s.me) || s.former(s.view).IsZero() {
		return nil
	}
	s.claimed = append(s.claimed, s.me)
	s.claimed = s.claimed[max(len(s.claimed)-maxClaims, 0):]
	return slices.Clone(s.claimed)
}

// others are those of nodes that this node does not succeed by w. What its former
// self wrote it writes out itself, before it says what it holds.
func (s *succession) others(nodes []Node, w *View) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return s.pending(n) && w.Has(s.me) })
}

// added: this node is in w, which it has learned while it tried to link own (nil:
// none), on top of the view that it knew.
func (s *succession) added(w, own *View) {
	if s.over {
		return
	}
	s.over = true
	former := s.former(s.view)
	direct := own != nil && own.Has(s.me) && own.Reason == ReasonReplace &&
		own.Epoch == s.view.Epoch+1 && !former.IsZero() && !own.Has(former) &&
		(w.Epoch > own.Epoch || w.same(own))
	if !direct {
		s.lose(w)
		return
	}
	s.out.Notices = append(s.out.Notices, Notice{Kind: Succeeded, Epoch: w.Epoch, Node: s.heir.Of, Host: s.cfg.Self.Host,
		Text: "this node goes on in the place of its former self: no lock was lost"})
}

// outside: w is the newest view known, and this node is not in it.
func (s *succession) outside(w *View) {
	// One below what was known shows an old state of the storage.
	if !s.over && w.Epoch >= s.memory.saved.Epoch && s.former(w).IsZero() {
		s.over = true
		s.lose(w)
	}
}

// ended: this node will not be a member.
func (s *succession) ended(why string) {
	if !s.over {
		s.over = true
		s.out.Expelled = &Expelled{Why: why}
	}
}

func (s *succession) lose(w *View) {
	why := ""
	for _, d := range w.Dropped {
		if s.heir.has(d.Node) {
			why = d.Why
		}
	}
	if why == "" {
		why = "the others went on before this daemon had taken the place of the one before it"
	}
	s.expelled(Expelled{Epoch: w.Epoch, By: w.By, Why: why})
}
