package recent

import (
	"cmp"
	"fmt"
	"slices"
)

// Host is what a host has answered, with its clock by that of who has asked.
type Host struct {
	*Answer
	// A time of the host is one from least to most later here, for what was at the moment of
	// the answer; and ppm millionths of how long ago it was more.
	least, most int64
	ppm         int64
}

// Own is what the host itself has done that asks.
func Own(a *Answer) Host { return Host{Answer: a} }

// Of is what another host has answered to a question that was sent and whose answer was
// received at these times of who has asked. Clocks run apart by driftPPM millionths at most.
func Of(a *Answer, sent, received, driftPPM int64) (Host, error) {
	h := Host{a, sent - a.Received, received - a.Sent, max(driftPPM, 1)}
	if h.least-h.most > drifts(a.Sent-a.Received, h.ppm) {
		return Host{}, fmt.Errorf("%w: it took longer to answer than to ask", ErrAnswer)
	}
	h.least, h.most = min(h.least, h.most), max(h.least, h.most)
	return h, nil
}

// drifts is how far clocks can run apart in a time.
func drifts(d, ppm int64) int64 { return (d/1e6 + 1) * ppm }

// span is when a time of the host was here, at the earliest and at the latest.
func (h *Host) span(t int64) (from, to int64) {
	if h.ppm == 0 {
		return t, t
	}
	d := drifts(h.Sent-t, h.ppm)
	return t + h.least - d, t + h.most + d
}

// Latest is when a time of the host was here, at the latest.
func (h *Host) Latest(t int64) int64 {
	_, to := h.span(t)
	return to
}

// knows reports whether h would know of each change since t, and knows of none of a name that
// may be the same.
func (h *Host) knows(t int64) bool {
	_, since := h.span(h.Since)
	_, alias := h.span(h.Alias)
	return since < t && (h.Alias == 0 || alias < t)
}

// Untouched reports whether no host has changed the name, or the content, that was asked for
// since t.
func Untouched(hosts []Host, t int64) bool {
	for i := range hosts {
		h := &hosts[i]
		if _, altered := h.span(h.Altered); !h.knows(t) || h.Altered != 0 && altered >= t {
			return false
		}
		for _, s := range h.Seen {
			if _, end := h.span(s.End); s.Open || end >= t {
				return false
			}
		}
	}
	return true
}

// Pending is a change of which it is not known whether it was made, with what was seen of its
// name before it and afterwards, by the clock of the host.
type Pending struct {
	Kind Kind // Gains or Loses
	// Before: the name was there at some time from LookedFrom to LookedTo, when it was
	// looked at before the change, if that was made at all.
	Before               bool
	LookedFrom, LookedTo int64
	// There: it was at some time from FoundFrom to FoundTo, when nothing of the process was
	// under way any more.
	There              bool
	Other              bool // and it is certainly not what was there before
	FoundFrom, FoundTo int64
	Made               bool // it is known that it was made
}

// Verdict is what is known of a pending change.
type Verdict uint8

const (
	Unsure Verdict = iota
	// Done: it was made, and if it gains a name that is still what has it.
	Done
	// NotDone: it was not made; or another host has undone it, for one that gains a name.
	NotDone
)

// limits of the search: what takes more is not decided.
const (
	mostStates = 200_000
)

// lookBack is how long before the change what happened to the name is of use.
const lookBack = 10e9

// Back is how far back a [Question] at now has to reach for a change that looked at its name
// at t first.
func Back(t, now int64) int64 { return now - t + 2*lookBack }

// Decide tells whether p was made: in no order in which all that the hosts have seen can have
// happened it was not, or in none it was.
func Decide(p *Pending, hosts []Host) Verdict {
	s := search{pending: p, from: p.LookedFrom - lookBack}
	for i := range hosts {
		h := &hosts[i]
		if !h.knows(p.LookedFrom) {
			return Unsure
		}
		_, since := h.span(h.Since)
		s.from = max(s.from, since)
	}
	if !s.collect(hosts) {
		return Unsure
	}
	for _, present := range [...]bool{false, true} {
		s.try(place{state: state{present: present}})
	}
	switch {
	case s.gaveUp || s.yes == s.no:
		return Unsure
	case s.yes:
		return Done
	}
	return NotDone
}

// item is something that has happened at one moment, from begin to end by the clock of its
// host, and from least to most by that of who asks.
type item struct {
	what        what
	host        int
	begin, end  int64
	least, most int64
	kind        Kind
	sure, open  bool
}

type what uint8

const (
	theirs what = iota
	pending
	lookedBefore
	found
)

// state is what is true after some items.
type state struct {
	present bool // the name is there
	mine    bool // by the pending change
	same    bool // it is the one that was looked at before
	done    bool // which was made
	is      bool // what is asked for was so when it was found
}

// search finds what can be true in the end. What one host has done is a chain: nearly all of it
// is over before the next begins, and its order is known, however little is of its clock. What
// may be at any of many moments of its chain is kept apart: it is wide.
type search struct {
	pending *Pending
	from    int64
	chains  [][]item // by begin
	wide    []item
	need    [][]int // of each wide one and each chain: so far has the chain to be placed before
	seen    map[place]bool
	yes, no bool
	gaveUp  bool
}

// place is how far a search has got: of each chain all before first are placed, and those of a
// mask behind it; and of the wide ones those of another mask.
type place struct {
	first [mostChains]uint16
	some  [mostChains]uint16
	wide  uint16
	state
}

const (
	mostChains = 8
	mostWide   = 16
	mostAhead  = 16 // of a chain
	wideFrom   = 8  // so many of its chain begin while it may happen
)

// collect takes all that may have happened since s.from, and until the name was found.
func (s *search) collect(hosts []Host) bool {
	p := s.pending
	own := func(w what, from, to int64) item {
		return item{what: w, host: -1, begin: from, end: to, least: from, most: to, sure: true}
	}
	all := []item{own(lookedBefore, p.LookedFrom, p.LookedTo), own(found, p.FoundFrom, p.FoundTo)}
	x := own(pending, p.LookedTo+1, p.FoundFrom-1)
	x.kind, x.sure = p.Kind, p.Made
	all = append(all, x)
	for i := range hosts {
		h := &hosts[i]
		for _, e := range h.Seen {
			x := item{host: i, begin: e.Begin, end: e.End, kind: e.Kind, sure: e.Sure, open: e.Open}
			if h.ppm == 0 {
				x.host = -1 // it is the same clock
			}
			x.least, _ = h.span(e.Begin)
			_, x.most = h.span(e.End)
			switch {
			case !e.Open && x.most < s.from || x.least > p.FoundTo:
				continue
			case x.least < s.from, x.most > p.FoundTo: // it may have been made outside, and then says nothing
				x.sure = false
			}
			if x.open {
				x.most = latest
			}
			all = append(all, x)
		}
	}
	return s.divide(all)
}

// divide makes chains of all.
func (s *search) divide(all []item) bool {
	slices.SortStableFunc(all, func(x, y item) int { return cmp.Or(cmp.Compare(x.host, y.host), cmp.Compare(x.begin, y.begin)) })
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(x item) bool { return x.host != all[0].host })
		if n < 0 {
			n = len(all)
		}
		var chain []item
		for i, x := range all[:n] {
			if x.open || i+wideFrom < n && all[i+wideFrom].begin <= x.end {
				s.wide = append(s.wide, x)
			} else {
				chain = append(chain, x)
			}
		}
		s.chains, all = append(s.chains, chain), all[n:]
	}
	for i := range s.wide {
		need := make([]int, len(s.chains))
		for g, chain := range s.chains {
			for j := range chain {
				if chain[j].isBefore(&s.wide[i]) {
					need[g] = j + 1
				}
			}
		}
		s.need = append(s.need, need)
	}
	s.seen = map[place]bool{}
	return len(s.wide) <= mostWide && len(s.chains) <= mostChains
}

func (x *item) isBefore(y *item) bool {
	switch {
	case x.open:
		return false
	case x.host == y.host:
		return x.end < y.begin
	}
	return x.most < y.least
}

// after is what is true after x at c; false: it cannot have happened then.
func (s *search) after(c state, x *item) (state, bool) {
	switch x.what {
	case lookedBefore:
		c.same = c.present
		return c, c.present == s.pending.Before
	case found:
		if c.same && s.pending.Other {
			return c, false
		}
		if c.is = c.done; s.pending.Kind == Gains {
			c.is = c.mine
		}
		return c, c.present == s.pending.There
	}
	ok := true
	c.same = false
	switch x.kind {
	case Gains:
		ok, c.present, c.mine = !c.present, true, x.what == pending
	case Loses:
		ok, c.present, c.mine = c.present, false, false
	case Gets:
		c.present, c.mine = true, false
	case Swaps:
		ok, c.mine = c.present, false
	}
	c.done = c.done || x.what == pending
	return c, ok
}

// try finds all that can be true in the end if it has got as far as p.
func (s *search) try(p place) {
	all := int(p.wide) == 1<<len(s.wide)-1
	for g := range s.chains {
		for p.some[g]&1 != 0 {
			p.first[g]++
			p.some[g] >>= 1
		}
		all = all && int(p.first[g]) == len(s.chains[g])
	}
	if s.yes && s.no || s.gaveUp || s.seen[p] {
		return
	}
	if s.seen[p] = true; len(s.seen) > mostStates {
		s.gaveUp = true
		return
	}
	if all {
		s.yes, s.no = s.yes || p.is, s.no || !p.is
		return
	}
	for g := range s.chains {
		s.tryChain(&p, g)
	}
	for i := range s.wide {
		if x := &s.wide[i]; p.wide>>i&1 == 0 && s.isNext(&p, x, s.need[i]) {
			q := p
			q.wide |= 1 << i
			s.place(q, x)
		}
	}
}

// tryChain is try with what may come next of one chain.
func (s *search) tryChain(p *place, g int) {
	soonest := latest // what begins later comes later than one that is not placed
	for k, rest := 0, s.chains[g][p.first[g]:]; k < len(rest) && rest[k].begin <= soonest; k++ {
		if k == mostAhead {
			s.gaveUp = true
			return
		}
		if p.some[g]>>k&1 != 0 {
			continue
		}
		x := &rest[k]
		if soonest = min(soonest, x.end); s.isNext(p, x, nil) {
			q := *p
			q.some[g] |= 1 << k
			s.place(q, x)
		}
	}
}

// place goes on with x, which is placed in p already.
func (s *search) place(p place, x *item) {
	if c, ok := s.after(p.state, x); ok {
		q := p
		q.state = c
		s.try(q)
	}
	if !x.sure {
		s.try(p) // it was not made
	}
}

// isNext reports whether nothing has happened before x that is not placed. need is how far
// chains have to be placed, where x is none of a chain. Otherwise the first ones of each chain
// are enough, as what is over earlier than those that begin before it is wide.
func (s *search) isNext(p *place, x *item, need []int) bool {
	for g, chain := range s.chains {
		first := int(p.first[g])
		to := min(first+mostAhead, len(chain))
		if need != nil {
			if to = need[g]; to > first+mostAhead {
				return false
			}
		}
		for k := first; k < to; k++ {
			if p.some[g]>>(k-first)&1 == 0 && chain[k].isBefore(x) {
				return false
			}
		}
	}
	for j := range s.wide {
		if y := &s.wide[j]; y != x && p.wide>>j&1 == 0 && y.isBefore(x) {
			return false
		}
	}
	return true
}
