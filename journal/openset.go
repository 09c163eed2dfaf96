package journal

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"

	"github.com/klauspost/compress/s2"
)

// openSet is the requests that have begun and not ended, each with the records
// that tell its story so far. It is the writer's.
//
// Most requests end soon. What is open for long, like 250,000 ranges of one
// file, is packed: that is a third of the memory, and the garbage collector has
// no pointers in it to follow.
type openSet struct {
	node   locks.NodeID // of most records
	reqs   map[uint64]*openRequest
	free   [][]Record // to be used again
	recent []uint64   // a ring of the requests that were added last, packed when they leave it
	next   int        // of recent
	buf    []byte     // for pack
	one    []byte     // for pack
}

// recentRequests is how many of the last requests are not packed.
const recentRequests = 1024

// openRequest keeps the last record of each kind: of a request that waits for
// one node after the other, or gives up its range byte by byte, the rest is
// only history.
type openRequest struct {
	recs   []Record // in the order of their sequence; nil if they are packed
	packed []byte   // as in a block; else nil
}

func newOpenSet(node locks.NodeID) *openSet {
	return &openSet{node: node, reqs: make(map[uint64]*openRequest)}
}

// apply takes account of a record.
func (s *openSet) apply(r *Record) {
	if r.Request == 0 || r.Event > Lost {
		return
	}
	q := s.reqs[r.Request]
	if r.ends() {
		if q != nil {
			delete(s.reqs, r.Request)
			s.reuse(q.recs)
		}
		return
	}
	wasPacked := false
	if q == nil {
		if r.Event != Requested && r.Event != Granted {
			return // late: it has ended
		}
		q = &openRequest{recs: s.room()}
		s.reqs[r.Request] = q
		s.remember(r.Request)
	} else if wasPacked = q.packed != nil; wasPacked {
		q.recs, q.packed = s.recordsOf(q), nil
	}
	for i := range q.recs {
		if q.recs[i].Event == r.Event {
			q.recs = slices.Delete(q.recs, i, i+1)
			break
		}
	}
	q.recs = append(q.recs, *r)
	if wasPacked {
		s.pack(q)
	}
}

// remember notes that a request was added, and packs the one that was added so
// many ago that it need no longer be at hand.
func (s *openSet) remember(request uint64) {
	if len(s.recent) < recentRequests {
		s.recent = append(s.recent, request)
		return
	}
	if q := s.reqs[s.recent[s.next]]; q != nil {
		s.pack(q)
	}
	s.recent[s.next] = request
	s.next = (s.next + 1) % recentRequests
}

func (s *openSet) pack(q *openRequest) {
	if q.packed != nil {
		return
	}
	s.buf = s.buf[:0]
	c := blockContext{node: s.node}
	for i := range q.recs {
		s.one = appendRecord(s.one[:0], &q.recs[i], &c)
		s.buf = wire.String(s.buf, s.one)
		c.seq = q.recs[i].Seq
	}
	s.one = s2.Encode(s.one[:cap(s.one)], s.buf)
	q.packed = slices.Clone(s.one)
	s.reuse(q.recs)
	q.recs = nil
}

func (s *openSet) room() []Record {
	if n := len(s.free); n > 0 {
		recs := s.free[n-1]
		s.free = s.free[:n-1]
		return recs
	}
	return make([]Record, 0, 2)
}

func (s *openSet) reuse(recs []Record) {
	if recs != nil && len(s.free) < recentRequests {
		clear(recs)
		s.free = append(s.free, recs[:0])
	}
}

// recordsOf are those of q, in the order of their sequence. The caller must not
// change them.
func (s *openSet) recordsOf(q *openRequest) []Record {
	if q.packed == nil {
		return q.recs
	}
	recs := make([]Record, 0, 2)
	d := decoder{blockContext: blockContext{node: s.node}}
	plain, err := s2.Decode(nil, q.packed)
	if err != nil {
		panic(fmt.Sprintf("journal: records that were packed here cannot be read: %v", err)) // memory is damaged
	}
	for in := wire.NewReader(plain); ; {
		b := in.Bytes()
		if len(b) == 0 {
			return recs
		}
		if err := d.decode(b); err != nil {
			panic(fmt.Sprintf("journal: a record that was packed here cannot be read: %v", err)) // memory is damaged
		}
		recs = append(recs, d.rec)
	}
}

// held reports whether the program holds something.
func held(recs []Record) bool {
	return slices.ContainsFunc(recs, func(r Record) bool {
		return r.Event == Granted || r.Event == Released
	})
}

// story is one record that has all that is known of a request: of its last
// grant, if there was one, else of the last record.
func story(recs []Record) Record {
	for i := range recs {
		if recs[i].Event == Granted {
			return recs[i]
		}
	}
	return recs[len(recs)-1]
}

// records are those of all open requests, in the order of the sequence.
func (s *openSet) records() []*Record {
	var all []*Record
	for _, q := range s.reqs {
		recs := s.recordsOf(q)
		for i := range recs {
			all = append(all, &recs[i])
		}
	}
	slices.SortFunc(all, func(a, b *Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return all
}

// stories are the records of each open request, in the order in which they began.
func (s *openSet) stories() [][]Record {
	all := make([][]Record, 0, len(s.reqs))
	for _, q := range s.reqs {
		all = append(all, s.recordsOf(q))
	}
	slices.SortFunc(all, func(a, b []Record) int { return cmp.Compare(a[0].Seq, b[0].Seq) })
	return all
}
