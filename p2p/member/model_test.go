package member_test

import (
	"fmt"
	"strings"
	"testing"
)

// A second, independent statement of the rules that safety rests on, small
// enough to be searched through completely: two or three nodes, a few epochs,
// and everything that can happen may happen at any moment or never. It leaves
// out what safety does not rest on: SYNC, preference, politeness, back-off,
// pruning, S.

// The times of the model are in units. A tick of the clock is an event like any
// other, so a limit that is reached may be acted upon at once, or long after.
// Ages are capped where they make no difference any more: those of promises at
// L, which is also "never". (An older T that is heard would only make a node
// wait longer before it drops the other.)
const (
	mNodes  = 3
	mEpochs = 4
)

// mview is who is in a view: the incarnation of each node, 0 if it is not.
type mview [mNodes]uint8

// mnode is a node. Ages count from an event.
type mnode struct {
	member bool
	e      uint8 // installed epoch; outside: newest known
	inc    uint8 // incarnations of a node are 1, 2, ...
	prop   mview // what it proposes for e+1
	open   bool  // there is a proposal
	look   uint8 // age of the start of the last look that counts
	known  uint8 // since e was learned

	// Of each other node:
	ten    [mNodes]uint8 // age of the newest T of this node that it promised at e
	prom   [mNodes]uint8 // age of its newest T that this node promises at e
	silent [mNodes]uint8 // since a promise to it advanced
	heard  [mNodes]bool
}

// mstate is everything. A message is a heartbeat of one node to another at an
// epoch, with the age of its T and the age of the promise in it; it may be
// received any number of times, or never. So nothing is lost by letting each
// node send at every moment.
type mstate struct {
	n      [mNodes]mnode
	chain  [mEpochs + 1]mview
	linked [mEpochs + 1]uint8 // age of the link of each view
	top    uint8
	msgs   [mNodes][mNodes]uint64 // a set, by sender and receiver
}

func mbit(epoch, t, prom uint8) uint64 { return 1 << (16*(epoch-1) + 4*t + prom) }

// model is how long things take, and what is taken away, to see that the search
// finds it.
type model struct {
	nodes  int
	epochs uint8
	l, ls  uint8 // L and Ls; delta is one unit

	noLookTenure, lookAtReply, dropUnproved, promiseWhileProposing, noDelta, keepTenure, alone bool
}

func (s *mstate) view(i int) mview { return s.chain[s.n[i].e] }

func (m *model) live(s *mstate, i int) bool {
	n := &s.n[i]
	if !n.member || n.look >= m.ls && !m.noLookTenure {
		return false
	}
	v := s.view(i)
	for j := range m.nodes {
		if j != i && v[j] != 0 && n.ten[j] >= m.l {
			return false
		}
	}
	return true
}

// check is S1 and S2.
func (m *model) check(s *mstate) error {
	for i := range m.nodes {
		if !m.live(s, i) {
			continue
		}
		for e := s.n[i].e; e <= s.top; e++ {
			if s.chain[e][i] != s.n[i].inc {
				return fmt.Errorf("S2: node %d is live at %d, and not in %d", i, s.n[i].e, e)
			}
		}
		for j := range i {
			if s.n[j].e != s.n[i].e && m.live(s, j) {
				return fmt.Errorf("S1: live at %d and at %d", s.n[j].e, s.n[i].e)
			}
		}
	}
	return nil
}

// settle sends what can be sent, and forgets what nobody can receive.
func (m *model) settle(s mstate) mstate {
	for i := range m.nodes {
		n := &s.n[i]
		v := s.view(i)
		for j := range m.nodes {
			if j == i {
				continue
			}
			if n.member && v[j] != 0 {
				s.msgs[i][j] |= mbit(n.e, 0, n.prom[j])
			}
			for e := uint8(1); e < s.n[j].e; e++ {
				s.msgs[i][j] &^= 0xffff << (16 * (e - 1))
			}
		}
	}
	return s
}

// tick lets a unit of time pass, for all.
func (m *model) tick(s mstate) mstate {
	promise := func(age uint8) uint8 { return min(age+1, m.l) }
	for i := range m.nodes {
		n := &s.n[i]
		n.look, n.known = min(n.look+1, m.ls), min(n.known+1, m.ls+1)
		for j := range m.nodes {
			n.ten[j], n.prom[j], n.silent[j] = promise(n.ten[j]), promise(n.prom[j]), min(n.silent[j]+1, m.l+1)
			var aged uint64
			for e := uint8(1); e <= mEpochs && s.msgs[i][j] != 0; e++ {
				for t := range m.l + 1 {
					for p := range m.l + 1 {
						if s.msgs[i][j]&mbit(e, t, p) != 0 {
							aged |= mbit(e, promise(t), promise(p))
						}
					}
				}
			}
			s.msgs[i][j] = aged
		}
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
	if now[i] != n.inc { // not in it: a new incarnation for this base
		*n = m.fresh(n.inc + 1)
		n.e = w
		return s
	}
	was := *n
	*n = m.fresh(n.inc)
	n.member, n.e = true, w
	if was.member {
		n.look = was.look
	}
	for j := range m.nodes {
		if j == i || now[j] == 0 {
			continue
		}
		n.silent[j] = 0
		if was.member && old[j] == now[j] {
			n.silent[j], n.heard[j] = was.silent[j], was.heard[j]
			if m.keepTenure {
				n.ten[j] = was.ten[j]
			}
		}
	}
	return s
}

// step is what led to a state. It becomes text only when it is told: a search makes
// millions.
type step struct {
	node   int // -1: of none
	format string
	args   [3]int // as many as format has
}

func (s step) String() string {
	if s.node < 0 {
		return s.format
	}
	args := []any{s.node}
	for _, x := range s.args[:strings.Count(s.format, "%")] {
		args = append(args, x)
	}
	return fmt.Sprintf("%d "+s.format, args...)
}

// next calls f with every state that can follow, and what led to it.
func (m *model) next(s mstate, f func(what step, t mstate)) {
	f(step{node: -1, format: "tick"}, m.tick(s))
	for i := range m.nodes {
		w := moves{m, &s, i, f}
		w.learnAny()
		w.link()
		if s.n[i].member {
			w.endLook()
			w.propose(w.does("proposes the same"), func(*mview) {})
			w.others()
		} else {
			w.addItself()
		}
	}
}

// moves are what node i can do in s.
type moves struct {
	*model
	s *mstate
	i int
	f func(what step, t mstate)
}

func (w *moves) node() *mnode { return &w.s.n[w.i] }

// does is a step of the node.
func (w *moves) does(what string, args ...int) step {
	s := step{node: w.i, format: what}
	copy(s.args[:], args)
	return s
}

// with is a change of the node, or of more.
func (w *moves) with(what step, change func(t *mstate, n *mnode)) {
	t := *w.s
	change(&t, &t.n[w.i])
	w.f(what, t)
}

func (w *moves) propose(what step, change func(v *mview)) {
	if n := w.node(); n.open || n.e >= w.epochs {
		return
	}
	w.with(what, func(t *mstate, n *mnode) {
		n.prop, n.open = t.view(w.i), true
		change(&n.prop)
	})
}

// learnAny: views are facts. Any that is linked may be learned, by a look or by a
// message.
func (w *moves) learnAny() {
	for e := w.node().e + 1; e <= w.s.top; e++ {
		w.f(w.does("learns %d", int(e)), w.model.learn(*w.s, w.i, e))
	}
}

// link: one may be carried out at any time after its proposal.
func (w *moves) link() {
	if n := w.node(); n.open && n.e == w.s.top {
		w.with(w.does("links"), func(t *mstate, n *mnode) {
			t.top++
			t.chain[t.top], t.linked[t.top] = n.prop, 0
		})
	}
}

// addItself is Add: an outsider may add itself, on top of what it knows.
func (w *moves) addItself() {
	w.propose(w.does("proposes itself"), func(v *mview) {
		if w.alone {
			*v = mview{}
		}
		v[w.i] = w.node().inc
	})
}

// endLook: a look counts if no view above e was linked when it began. It may end
// at any time after; the one that began last is the strongest.
func (w *moves) endLook() {
	n, began := w.node(), uint8(0)
	if n.e < w.s.top && !w.lookAtReply {
		began = w.s.linked[n.e+1]
	}
	if began < n.look {
		w.with(w.does("ends a look of age %d", int(began)), func(_ *mstate, n *mnode) { n.look = began })
	}
}

// others is what a member can do with each other node: Add one that asked on
// this base, hear one, and Drop any of those that may be dropped.
func (w *moves) others() {
	v := w.s.view(w.i)
	var silent []int
	for j := range w.nodes {
		o := &w.s.n[j]
		switch {
		case j == w.i:
		case v[j] != 0:
			w.receive(j)
			if w.mayDrop(j) {
				silent = append(silent, j)
			}
		case !o.member && o.e == w.node().e:
			w.propose(w.does("proposes with %d", j), func(v *mview) { v[j] = o.inc })
		}
	}
	for set := 1; set < 1<<len(silent); set++ {
		without := 0
		for k, j := range silent {
			if set>>k&1 != 0 {
				without |= 1 << j
			}
		}
		w.propose(w.does("proposes without %03b", without), func(v *mview) {
			for j := range v {
				if without>>j&1 != 0 {
					v[j] = 0
				}
			}
		})
	}
}

// mayDrop reports whether j has been silent for long enough.
func (w *moves) mayDrop(j int) bool {
	n, drop := w.node(), w.l+1
	if w.noDelta {
		drop = w.l - 1
	}
	return n.silent[j] >= drop && (n.heard[j] || n.known >= w.ls+1 || w.dropUnproved)
}

// receive is each heartbeat of j that the node can receive.
func (w *moves) receive(j int) {
	e := w.node().e
	for t := range w.l + 1 {
		for p := range w.l + 1 {
			if w.s.msgs[j][w.i]&mbit(e, t, p) == 0 {
				continue
			}
			w.with(w.does("hears %d: t=%d prom=%d", j, int(t), int(p)), func(_ *mstate, n *mnode) {
				n.heard[j] = true
				n.ten[j] = min(n.ten[j], p)
				refused := n.open && n.prop[j] == 0 && !w.promiseWhileProposing
				if t < n.prom[j] && !refused {
					n.prom[j], n.silent[j] = t, 0
				}
			})
		}
	}
}

// search goes through all states within the bound on their number. It returns
// how many there are, and the shortest way to a violation.
func (m *model) search(first mstate, limit int) (states int, complete bool, trace []string, err error) {
	type from struct {
		parent int32
		what   step
	}
	seen := map[mstate]struct{}{first: {}}
	list, how := []mstate{first}, []from{{-1, step{node: -1, format: "start"}}}
	for k := 0; k < len(list); k++ {
		if err = m.check(&list[k]); err != nil {
			for at := int32(k); at >= 0; at = how[at].parent {
				trace = append([]string{how[at].what.String()}, trace...)
			}
			return len(list), false, trace, err
		}
		if len(list) >= limit {
			return len(list), false, nil, nil
		}
		m.next(list[k], func(what step, t mstate) {
			t = m.settle(t)
			if _, ok := seen[t]; !ok {
				seen[t] = struct{}{}
				list = append(list, t)
				how = append(how, from{int32(k), what})
			}
		})
	}
	return len(list), true, nil, nil
}

// fresh is a node that nothing has happened to.
func (m *model) fresh(inc uint8) mnode {
	n := mnode{inc: inc, look: m.ls}
	for j := range m.nodes {
		n.ten[j], n.prom[j], n.silent[j] = m.l, m.l, m.l+1
	}
	return n
}

// begin: some nodes in view 1, which they have just installed, the others outside.
func (m *model) begin(members int) mstate {
	s := mstate{top: 1}
	for i := range m.nodes {
		s.n[i] = m.fresh(1)
	}
	for i := range members {
		s.chain[1][i] = 1
		s.n[i].member, s.n[i].e = true, 1
		for j := range members {
			s.n[i].silent[j] = 0
		}
	}
	return s
}

func TestExhaustiveSearchOfTheRules(t *testing.T) {
	for _, c := range []struct {
		members, nodes int
		l, ls          uint8
		short, long    uint8 // epochs that are searched completely
	}{
		{1, 2, 2, 2, 2, 4},
		{1, 2, 1, 3, 2, 4},
		{2, 2, 2, 2, 2, 4},
		{2, 2, 1, 3, 2, 4},
		{2, 3, 1, 1, 0, 2},
		{3, 3, 1, 1, 0, 2},
		{1, 3, 1, 1, 0, 3},
	} {
		epochs := c.short
		if *flagLong {
			epochs = c.long
		}
		if epochs == 0 {
			continue
		}
		m := model{nodes: c.nodes, epochs: epochs, l: c.l, ls: c.ls}
		what := fmt.Sprintf("%d nodes, %d of them members, L=%d Ls=%d, %d epochs", c.nodes, c.members, c.l, c.ls, epochs)
		n, complete, trace, err := m.search(m.begin(c.members), 6_000_000)
		if err != nil {
			t.Errorf("%s: %v after %d states:\n%s", what, err, n, strings.Join(trace, "\n"))
			continue
		}
		t.Logf("%s: %d states, complete: %v", what, n, complete)
		if !complete && !*flagLong {
			t.Errorf("%s: not complete", what)
		}
	}
}

func TestExhaustiveSearchFindsWhatIsTakenAway(t *testing.T) {
	for _, c := range []struct {
		name    string
		members int
		m       model
	}{
		{"no look tenure", 1, model{noLookTenure: true, l: 2, ls: 2}},
		{"look stamped at its end", 1, model{lookAtReply: true, l: 2, ls: 2}},
		{"drop without heard or known", 1, model{dropUnproved: true, l: 1, ls: 3}},
		{"promise while proposing", 2, model{promiseWhileProposing: true, l: 2, ls: 2}},
		{"drop too early", 2, model{noDelta: true, l: 2, ls: 2}},
		{"tenure kept over install", 2, model{keepTenure: true, l: 2, ls: 2}},
		{"challenger alone", 1, model{alone: true, l: 2, ls: 2}},
	} {
		c.m.epochs, c.m.nodes = 3, 2
		n, _, trace, err := c.m.search(c.m.begin(c.members), 1_500_000)
		if err == nil {
			t.Errorf("%s: not found in %d states", c.name, n)
			continue
		}
		t.Logf("%s: %v, in %d steps: %s", c.name, err, len(trace)-1, strings.Join(trace[1:], "; "))
	}
}
