package member_test

import (
	"fmt"
	"strings"
	"testing"
)

// A second, independent statement of the rules that safety rests on, small
// enough to be searched through completely: two nodes, a few epochs, time in
// whole units, and everything that can happen may happen at any moment or
// never. It leaves out what safety does not rest on: SYNC, preference,
// politeness, back-off, pruning, S.

// The times of the model are in units. A tick of the clock is an event like any
// other, so a limit that is reached may be acted upon at once, or long after.
// Ages are capped where they make no difference any more: those of promises at
// L, which is also "never". (An older T that is heard would only make a node
// wait longer before it drops the other.)
const mEpochs = 4

// mview is who is in a view: the incarnation of each node, 0 if it is not.
type mview [2]uint8

// mnode is a node. Ages count from an event.
type mnode struct {
	member bool
	e      uint8 // installed epoch; outside: newest known
	inc    uint8 // incarnations of a node are 1, 2, ...
	prop   mview // what it proposes for e+1
	open   bool  // there is a proposal

	look   uint8 // age of the start of the last look that counts
	ten    uint8 // age of the newest T of this node that the other promised at e
	prom   uint8 // age of the newest T of the other that this node promises at e
	silent uint8 // since a promise advanced
	known  uint8 // since e was learned
	heard  bool
}

// mstate is everything. A message is a heartbeat of one node at an epoch, with
// the age of its T and the age of the promise in it; it may be received any
// number of times, or never. So nothing is lost by letting each node send at
// every moment.
type mstate struct {
	n      [2]mnode
	chain  [mEpochs + 1]mview
	linked [mEpochs + 1]uint8 // age of the link of each view
	top    uint8
	msgs   [2]uint64 // sent by each node: a set
}

// settle sends what can be sent, and forgets what nobody can receive.
func (m *model) settle(s mstate) mstate {
	for i := range s.n {
		n := &s.n[i]
		if n.member && s.other(i) {
			s.msgs[i] |= mbit(n.e, 0, n.prom)
		}
		for e := uint8(1); e < s.n[1-i].e; e++ {
			s.msgs[i] &^= 0xffff << (16 * (e - 1))
		}
	}
	return s
}

func mbit(epoch, t, prom uint8) uint64 { return 1 << (16*(epoch-1) + 4*t + prom) }

// model is what may be taken away, to see that the search finds it.
type model struct {
	epochs uint8
	l, ls  uint8 // L and Ls; delta is one unit

	noLookTenure, lookAtReply, dropUnproved, promiseWhileProposing, noDelta, keepTenure, alone bool
}

func (s *mstate) view(i int) mview { return s.chain[s.n[i].e] }

// other reports whether the other node is in the view of i.
func (s *mstate) other(i int) bool { return s.view(i)[1-i] != 0 }

func (m *model) live(s *mstate, i int) bool {
	n := &s.n[i]
	return n.member && (n.look < m.ls || m.noLookTenure) && (!s.other(i) || n.ten < m.l)
}

// check is S1 and S2.
func (m *model) check(s *mstate) error {
	for i := range s.n {
		if !m.live(s, i) {
			continue
		}
		for e := s.n[i].e; e <= s.top; e++ {
			if s.chain[e][i] != s.n[i].inc {
				return fmt.Errorf("S2: node %d is live at %d, and not in %d", i, s.n[i].e, e)
			}
		}
		if m.live(s, 1-i) && s.n[1-i].e != s.n[i].e {
			return fmt.Errorf("S1: live at %d and at %d", s.n[0].e, s.n[1].e)
		}
	}
	return nil
}

// tick lets a unit of time pass, for all.
func (m *model) tick(s mstate) mstate {
	promise := func(age uint8) uint8 { return min(age+1, m.l) }
	for i := range s.n {
		n := &s.n[i]
		n.ten, n.prom, n.silent = promise(n.ten), promise(n.prom), min(n.silent+1, m.l+1)
		n.look, n.known = min(n.look+1, m.ls), min(n.known+1, m.ls+1)
		var aged uint64
		for e := uint8(1); e <= mEpochs; e++ {
			for t := range m.l + 1 {
				for p := range m.l + 1 {
					if s.msgs[i]&mbit(e, t, p) != 0 {
						aged |= mbit(e, promise(t), promise(p))
					}
				}
			}
		}
		s.msgs[i] = aged
	}
	for e := uint8(1); e <= s.top; e++ {
		s.linked[e] = min(s.linked[e]+1, m.ls)
	}
	return s
}

// learn takes a view that is linked.
func (m *model) learn(s mstate, i int, w uint8) mstate {
	n := &s.n[i]
	old, now := s.view(i), s.chain[w]
	wasMember := n.member
	n.e, n.open, n.prop, n.known = w, false, mview{}, 0
	if now[i] != n.inc { // not in it: a new incarnation for this base
		*n = m.fresh(n.inc + 1)
		n.e = w
		return s
	}
	n.member = true
	if !wasMember {
		n.look = m.ls
	}
	if !m.keepTenure {
		n.ten = m.l
	}
	n.prom = m.l
	if !wasMember || old[1-i] == 0 || old[1-i] != now[1-i] {
		n.silent, n.heard, n.ten = 0, false, m.l
	}
	return s
}

// next calls f with every state that can follow, and what led to it.
func (m *model) next(s mstate, f func(what string, t mstate)) {
	f("tick", m.tick(s))
	for i := range s.n {
		n := &s.n[i]
		name := func(what string) string { return fmt.Sprintf("%d %s", i, what) }
		with := func(what string, change func(t *mstate, n *mnode)) {
			t := s
			change(&t, &t.n[i])
			f(name(what), t)
		}
		// Views are facts: any that is linked may be learned, by a look or
		// by a message.
		for w := n.e + 1; w <= s.top; w++ {
			f(name(fmt.Sprintf("learns %d", w)), m.learn(s, i, w))
		}
		// A look counts if no view above e was linked when it began. It may
		// end at any time after; the one that began last is the strongest.
		if n.member {
			began := uint8(0)
			if n.e < s.top && !m.lookAtReply {
				began = s.linked[n.e+1]
			}
			if began < n.look {
				with(fmt.Sprintf("ends a look of age %d", began), func(t *mstate, n *mnode) { n.look = began })
			}
		}
		if n.open && n.e == s.top && s.top < m.epochs {
			with("links", func(t *mstate, n *mnode) {
				t.top++
				t.chain[t.top], t.linked[t.top] = n.prop, 0
			})
		}
		if n.member && !n.open && n.e < m.epochs {
			with("proposes the same", func(t *mstate, n *mnode) { n.prop, n.open = t.view(i), true })
		}
		if !n.member {
			// Add: an outsider may add itself, on top of what it knows.
			if !n.open && n.e < m.epochs {
				with("proposes itself", func(t *mstate, n *mnode) {
					n.prop, n.open = t.view(i), true
					n.prop[i] = n.inc
					if m.alone {
						n.prop[1-i] = 0
					}
				})
			}
			continue
		}
		if !s.other(i) {
			// Add: a member may add the outsider that asked on this base, also
			// when that one knows better by now.
			if o := &s.n[1-i]; !n.open && n.e < m.epochs && !o.member && o.e == n.e {
				with("proposes the other", func(t *mstate, n *mnode) {
					n.prop, n.open = t.view(i), true
					n.prop[1-i] = t.n[1-i].inc
				})
			}
			continue
		}
		for t := range m.l + 1 {
			for p := range m.l + 1 {
				if s.msgs[1-i]&mbit(n.e, t, p) == 0 || s.n[1-i].e < n.e {
					continue
				}
				with(fmt.Sprintf("receives t=%d prom=%d", t, p), func(st *mstate, n *mnode) {
					n.heard = true
					n.ten = min(n.ten, p)
					refused := n.open && n.prop[1-i] == 0 && !m.promiseWhileProposing
					if t < n.prom && !refused {
						n.prom, n.silent = t, 0
					}
				})
			}
		}
		drop := m.l + 1
		if m.noDelta {
			drop = m.l - 1
		}
		if !n.open && n.e < m.epochs && n.silent >= drop && (n.heard || n.known >= m.ls+1 || m.dropUnproved) {
			with("proposes without the other", func(t *mstate, n *mnode) {
				n.prop, n.open = t.view(i), true
				n.prop[1-i] = 0
			})
		}
	}
}

// search goes through all states within the bound on their number. It returns
// how many there are, and the shortest way to a violation.
func (m *model) search(first mstate, limit int) (states int, complete bool, trace []string, err error) {
	type from struct {
		parent int32
		what   string
	}
	seen := map[mstate]int32{first: 0}
	list, how := []mstate{first}, []from{{-1, "start"}}
	for k := 0; k < len(list); k++ {
		if err = m.check(&list[k]); err != nil {
			for at := int32(k); at >= 0; at = how[at].parent {
				trace = append([]string{how[at].what}, trace...)
			}
			return len(list), false, trace, err
		}
		if len(list) >= limit {
			return len(list), false, nil, nil
		}
		m.next(list[k], func(what string, t mstate) {
			t = m.settle(t)
			if _, ok := seen[t]; !ok {
				seen[t] = int32(len(list))
				list = append(list, t)
				how = append(how, from{int32(k), what})
			}
		})
	}
	return len(list), true, nil, nil
}

// fresh is a node that nothing has happened to.
func (m *model) fresh(inc uint8) mnode {
	return mnode{inc: inc, look: m.ls, ten: m.l, prom: m.l, silent: m.l + 1}
}

// memberAndOutsider: node 0 alone in view 1, node 1 outside.
func memberAndOutsider(m *model) mstate {
	s := mstate{n: [2]mnode{m.fresh(1), m.fresh(1)}, top: 1}
	s.chain[1] = mview{1, 0}
	s.n[0].member, s.n[0].e = true, 1
	return s
}

// twoMembers: both in view 1, which both have just installed.
func twoMembers(m *model) mstate {
	s := mstate{n: [2]mnode{m.fresh(1), m.fresh(1)}, top: 1}
	s.chain[1] = mview{1, 1}
	for i := range s.n {
		s.n[i].member, s.n[i].e, s.n[i].silent = true, 1, 0
	}
	return s
}

func TestExhaustiveSearchOfTheRules(t *testing.T) {
	limit, epochs := 1_000_000, uint8(2)
	if *flagLong {
		limit, epochs = 12_000_000, 4
	}
	for _, c := range []struct {
		name  string
		start func(m *model) mstate
		l, ls uint8
	}{
		{"a member and an outsider, L = Ls", memberAndOutsider, 2, 2},
		{"a member and an outsider, L < Ls", memberAndOutsider, 1, 3},
		{"two members, L = Ls", twoMembers, 2, 2},
		{"two members, L < Ls", twoMembers, 1, 3},
	} {
		for e := uint8(2); e <= epochs; e++ {
			m := model{epochs: e, l: c.l, ls: c.ls}
			n, complete, trace, err := m.search(c.start(&m), limit)
			if err != nil {
				t.Errorf("%s: %v after %d states:\n%s", c.name, err, n, strings.Join(trace, "\n"))
				break
			}
			t.Logf("%s, %d epochs: %d states, complete: %v", c.name, e, n, complete)
			if !complete {
				if e == 2 {
					t.Errorf("%s: two epochs should be searched completely", c.name)
				}
				break
			}
		}
	}
}

func TestExhaustiveSearchFindsWhatIsTakenAway(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(m *model) mstate
		m     model
	}{
		{"no look tenure", memberAndOutsider, model{noLookTenure: true, l: 2, ls: 2}},
		{"look stamped at its end", memberAndOutsider, model{lookAtReply: true, l: 2, ls: 2}},
		{"drop without heard or known", memberAndOutsider, model{dropUnproved: true, l: 1, ls: 3}},
		{"promise while proposing", twoMembers, model{promiseWhileProposing: true, l: 2, ls: 2}},
		{"drop too early", twoMembers, model{noDelta: true, l: 2, ls: 2}},
		{"tenure kept over install", twoMembers, model{keepTenure: true, l: 2, ls: 2}},
		{"challenger alone", memberAndOutsider, model{alone: true, l: 2, ls: 2}},
	} {
		c.m.epochs = 3
		n, _, trace, err := c.m.search(c.start(&c.m), 1_500_000)
		if err == nil {
			t.Errorf("%s: not found in %d states", c.name, n)
			continue
		}
		t.Logf("%s: %v, in %d steps: %s", c.name, err, len(trace)-1, strings.Join(trace[1:], "; "))
	}
}
