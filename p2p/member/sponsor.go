package member

import (
	"maps"
	"slices"
)

// sponsor welcomes newcomers, and adds those to the view that all members have
// welcomed.
type sponsor struct {
	*position
	proposer *proposer
	mail     *mail
	terms    *terms

	joiners map[Node]*joiner
}

// joiner is a newcomer that this node has welcomed at this epoch.
type joiner struct {
	member  Member
	ready   int64 // since when it has all welcomes; never: it has not
	lastAt  int64
	refused Refusal // why it cannot join; 0: it can
}

// hello: a newcomer asks to be welcomed at this epoch.
func (s *sponsor) hello(h Hello) {
	n := h.Member.Node
	j := s.joiners[n]
	if j == nil {
		if len(s.joiners) >= MaxMembers {
			return // it asks again, and those that are silent are forgotten
		}
		j = &joiner{ready: never}
		s.joiners[n] = j
		s.mail.meet(n.Peer, h.Member.Addrs)
	}
	j.member, j.lastAt = h.Member, s.now
	if code, why := s.terms.refusal(h); code != 0 {
		if j.refused != code {
			s.note(Refusing, n, h.Member.Host, "%s was refused: %s", h.Member.Name(), why)
		}
		j.refused, j.ready = code, never
		s.mail.send(n, Refused{Code: code, Text: clipText(why, MaxWhy)})
		return
	}
	switch {
	case !h.Ready:
		j.ready = never
	case j.ready == never:
		j.ready = s.now
	}
	j.refused = 0
	s.mail.send(n, Welcome{})
}

// propose adds the newcomers that all members have welcomed. The first member
// does it at once, the others one after another should it not.
func (s *sponsor) propose() {
	if len(s.joiners) == 0 {
		return
	}
	w := s.view.next(s.me, ReasonJoin)
	delay := 200 + 500*int64(min(s.index, 4))
	for _, n := range s.nodes() {
		j := s.joiners[n]
		if s.now-j.lastAt > s.p.Hears {
			delete(s.joiners, n)
			continue
		}
		if j.ready != never && s.now-j.ready >= delay && len(w.Members) < MaxMembers && !w.HasPeer(n.Peer) {
			w.add(j.member)
		}
	}
	if len(w.Members) > len(s.view.Members) {
		s.proposer.propose(w)
	}
}

// nodes are the newcomers, in an order that does not depend on the map.
func (s *sponsor) nodes() []Node {
	return slices.SortedFunc(maps.Keys(s.joiners), Node.Compare)
}

// forget drops what was about the view before.
func (s *sponsor) forget() {
	clear(s.joiners)
}
