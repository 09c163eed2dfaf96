package rcv

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
)

// info is what a node or a message knows of the system.
//
// The order of all requests is one sequence, the same for all nodes, of which
// each knows a part from its beginning on. Positions count from 1.
type info struct {
	// list are the ordered requests that may not be over, the paper's NONL:
	// those at the positions start+1 and up. All up to start are over.
	start uint64
	list  []exclusive.Request
	rows  []row // by node, the paper's NSIT
}

// A row is what is known of one node.
type row struct {
	// ordered is the largest stamp of a request of this node that has a place
	// in the order.
	ordered uint64
	// log are the requests that have reached this node and have no place yet,
	// the paper's MNL: the first one has its vote. It is the rest of a log
	// that only grows; version is how long it was.
	log     []exclusive.Request
	version uint64
}

func newInfo(n int) info { return info{rows: make([]row, n)} }

// clone is a copy that shares nothing that changes: logs are never changed in
// place, see vote and purge.
func (s *info) clone() info {
	return info{start: s.start, list: slices.Clone(s.list), rows: slices.Clone(s.rows)}
}

func (s *info) end() uint64 { return s.start + uint64(len(s.list)) }

// position is the one of r, or 0.
func (s *info) position(r exclusive.Request) uint64 {
	if i := slices.Index(s.list, r); i >= 0 {
		return s.start + uint64(i) + 1
	}
	return 0
}

// at is the request at position p, which is in the list.
func (s *info) at(p uint64) exclusive.Request { return s.list[p-s.start-1] }

// trim: all up to position p are over.
func (s *info) trim(p uint64) {
	if p > s.start {
		n := min(p-s.start, uint64(len(s.list)))
		s.list = s.list[n:]
		s.start += n
	}
}

// vote appends r to the log of node n.
func (s *info) vote(n int, r exclusive.Request) {
	w := &s.rows[n]
	w.log = append(slices.Clip(w.log), r)
	w.version++
}

// knows reports whether r has a place, or is in the log of node n.
func (s *info) knows(n int, r exclusive.Request) bool {
	return r.SN <= s.rows[r.Node].ordered || slices.Contains(s.rows[n].log, r)
}

// merge is the paper's Exchange: of the order the longer part, of each log the
// longer one. m is not changed.
func (s *info) merge(m *info) {
	if m.end() > s.end() {
		old := s.start
		s.start, s.list = m.start, slices.Clone(m.list)
		s.trim(old)
	} else {
		s.trim(m.start)
	}
	for n := range m.rows {
		w, o := &s.rows[n], &m.rows[n]
		w.ordered = max(w.ordered, o.ordered)
		if o.version > w.version {
			w.log, w.version = o.log, o.version
		}
	}
	s.purge()
}

// purge takes what has a place out of all logs.
func (s *info) purge() {
	placed := func(r exclusive.Request) bool { return r.SN <= s.rows[r.Node].ordered }
	for n := range s.rows {
		if w := &s.rows[n]; slices.ContainsFunc(w.log, placed) {
			w.log = slices.DeleteFunc(slices.Clone(w.log), placed)
		}
	}
}

// order is the paper's Order: it gives places until r has one, or the votes
// that are not known could change the next. It reports whether r has one.
func (s *info) order(r exclusive.Request) bool {
	for s.rows[r.Node].ordered < r.SN {
		first, ok := s.elect()
		if !ok {
			return false
		}
		s.list = append(s.list, first)
		s.rows[first.Node].ordered = first.SN
		s.purge()
	}
	return true
}

// elect is who gets the next place, if that is certain: the request with most
// votes, of equal ones the one of the smaller node.
func (s *info) elect() (exclusive.Request, bool) {
	type tally struct {
		exclusive.Request
		votes int
	}
	var sums []tally
	unknown := 0
	at := make([]int, len(s.rows)) // 1 + index of the node's request in sums
	for _, w := range s.rows {
		if len(w.log) == 0 {
			unknown++
			continue
		}
		r := w.log[0]
		i := at[r.Node] - 1
		if i >= 0 && sums[i].Request != r { // a node can have had two
			i = slices.IndexFunc(sums, func(t tally) bool { return t.Request == r })
		}
		if i < 0 {
			i = len(sums)
			sums = append(sums, tally{Request: r})
			at[r.Node] = i + 1
		}
		sums[i].votes++
	}
	if len(sums) == 0 {
		return exclusive.Request{}, false
	}
	before := func(a, b tally) bool {
		return a.votes > b.votes || a.votes == b.votes && byNode(a.Request, b.Request) < 0
	}
	best, second := sums[0], tally{Request: exclusive.Request{Node: 1}}
	for _, t := range sums[1:] {
		switch {
		case before(t, best):
			best, second = t, best
		case second.votes == 0 || before(t, second):
			second = t
		}
	}
	lead := best.votes - second.votes
	return best.Request, lead > unknown || lead == unknown && byNode(best.Request, second.Request) < 0
}

// byNode orders requests with equal votes.
func byNode(a, b exclusive.Request) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.SN, b.SN))
}

// agrees is an error if m has another request at a position that both know.
func (s *info) agrees(m *info) error {
	for p := max(s.start, m.start) + 1; p <= min(s.end(), m.end()); p++ {
		if a, b := s.at(p), m.at(p); a != b {
			return fmt.Errorf("the order has %v at %d, not %v", a, p, b)
		}
	}
	return nil
}

// fresh reports whether nothing is known.
func (s *info) fresh() bool {
	return s.end() == 0 && !slices.ContainsFunc(s.rows, func(w row) bool { return w.version > 0 || w.ordered > 0 })
}

// String is as in "NONL 2:[<1,1.3>] NSIT 0:3[<2,1.4>] 1:0[] ordered=1.3".
func (s info) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "NONL %d:%v NSIT", s.start, s.list)
	for n, w := range s.rows {
		if w.version == 0 && w.ordered == 0 {
			continue
		}
		fmt.Fprintf(&b, " %d:%d%v", n, w.version, w.log)
		if w.ordered > 0 {
			fmt.Fprintf(&b, "<=%v", locks.Token(w.ordered))
		}
	}
	return b.String()
}
