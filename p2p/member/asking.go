package member

import "slices"

// asking asks on the storage whether anybody is there.
type asking struct {
	*position
	memory *memory
	scans  *scans

	ask       *challenge // also after this node has added itself by it
	notBefore int64
	there     []UnaskOp // asks of this node that may be there: each with how to remove it
}

// challenge is a newcomer's ask on the storage. It decides nothing: after it
// the newcomer adds itself to the view, which is safe at any time, and drops
// nobody whom rule Drop protects. It is there so that a newcomer that reaches
// the storage alone does not disturb a cluster that is alive.
type challenge struct {
	c      Challenge
	posted bool
	age    waking // since then
	cache  int64  // the largest S of those concerned
	first  bool   // this node has not been a member before
	others bool   // members have answered, but not the one of this peer
	// answered is what a first start ends with if it still hears no member
	// when its patience is over.
	answered *End
}

func (a *asking) wake() {
	if a.ask != nil && a.ask.posted {
		a.ask.age.tick(a.base)
	}
}

// begin makes a challenge for the storage, unless it is too soon; own: it is
// for the members of this peer, see twins.
func (a *asking) begin(own bool) {
	if a.now < a.notBefore {
		return
	}
	c := Challenge{Node: a.me, Host: a.cfg.Self.Host, Addrs: a.addrs, Base: a.view.Epoch, Nonce: Inc(a.cfg.Random()), Own: own}
	if own {
		c.Addrs = nil // nobody is to connect
	}
	a.ask = &challenge{c: c, cache: max(a.cfg.Self.Cache, a.view.maxCache()), first: !a.memory.saved.Was}
}

// drop takes the ask of this node back.
func (a *asking) drop() { a.ask = nil }

// dropFor has it back for at least so long.
func (a *asking) dropFor(d int64) {
	a.drop()
	a.notBefore = a.now + d
}

func (a *asking) expelled() { a.ask, a.notBefore = nil, 0 }

// answeredByOthers: members are alive, but not the one that was asked for.
func (a *asking) answeredByOthers() { a.ask.others = true }

// endWith is what a first start ends with that members have answered.
func (a *asking) endWith(e End) { a.ask.answered = &e }

// unanswered reports whether the ask has stood for as long as patience, in waking
// time, and a look near its end saw no answer.
func (a *asking) unanswered(patience int64) bool {
	x := a.ask
	return x.posted && x.age.ms >= patience && a.scans.began >= x.age.from+patience-2*a.p.LookOut
}

// from is the newcomer whose answers are of interest.
func (a *asking) from() Node {
	if a.ask == nil {
		return Node{}
	}
	return a.ask.c.Node
}

// mine are those of the answers that are to this ask.
func (a *asking) mine(answers []Answer) []Answer {
	var mine []Answer
	for _, x := range answers {
		if a.ask != nil && x.To == a.ask.c.Node && x.Nonce == a.ask.c.Nonce {
			mine = append(mine, x)
		}
	}
	return mine
}

// unposted reports whether there is an ask that is not on the storage yet.
func (a *asking) unposted() bool { return a.ask != nil && !a.ask.posted }

// post is the operation that posts the ask. One that is not Own stands in
// the place of the last one.
func (a *asking) post() AskOp {
	c := a.ask.c
	if !c.Own {
		a.there = slices.DeleteFunc(a.there, func(u UnaskOp) bool { return !u.Own })
	}
	a.there = append(a.there, UnaskOp{Node: c.Node, Own: c.Own})
	return AskOp{c}
}

// posted takes the result of that.
func (a *asking) posted(op AskOp, err error) {
	x := a.ask
	switch {
	case x == nil || x.c.Nonce != op.Challenge.Nonce: // about another base
	case err == nil:
		x.posted, x.age = true, a.sinceNow()
	default:
		a.dropFor(a.p.Retry)
	}
}

// old is the place in there of one that is not needed any more, or -1.
func (a *asking) old() int {
	return slices.IndexFunc(a.there, func(u UnaskOp) bool {
		x := a.ask
		return x == nil || u.Own && (u.Node != x.c.Node || !x.c.Own)
	})
}

// remove is the operation that removes it.
func (a *asking) remove() UnaskOp {
	i := a.old()
	op := a.there[i]
	a.there = slices.Delete(a.there, i, i+1)
	return op
}
