package journal

import (
	"cmp"
	"iter"
	"slices"
)

// openSet is the requests that have begun and not ended, each with the records
// that tell its story so far. It is the writer's.
//
// It keeps the last record of each kind: of a request that waits for one node after
// the other, or gives up its range byte by byte, the rest is only history.
//
// Most requests end soon. What is open for long is packed, see shelf.
type openSet struct {
	reqs   map[uint64][]Record // in the order of their sequence
	packed shelf
	free   [][]Record // to be used again
	recent []uint64   // a ring of the requests that were added last, packed when they leave it
	next   int        // of recent
}

// recentRequests is how many of the last requests are not packed.
const recentRequests = 1024

func newOpenSet() *openSet { return &openSet{reqs: make(map[uint64][]Record), packed: newShelf()} }

func (s *openSet) len() int { return len(s.reqs) + len(s.packed.at) }

// apply takes account of a record.
func (s *openSet) apply(r *Record) {
	if r.Request == 0 || r.Event > Lost {
		return
	}
	recs, fresh := s.reqs[r.Request]
	if r.ends() {
		if fresh {
			delete(s.reqs, r.Request)
			s.reuse(recs)
		} else {
			s.packed.drop(r.Request)
		}
		return
	}
	_, packed := s.packed.at[r.Request]
	switch {
	case fresh:
	case packed:
		recs = s.packed.records(r.Request, s.room())
		s.packed.drop(r.Request)
	case r.Event != Requested && r.Event != Granted:
		return // late: it has ended
	default:
		recs = s.room()
		s.remember(r.Request)
	}
	for i := range recs {
		if recs[i].Event == r.Event {
			recs = slices.Delete(recs, i, i+1)
			break
		}
	}
	recs = append(recs, *r)
	if packed {
		s.packed.put(r.Request, recs)
		s.reuse(recs)
	} else {
		s.reqs[r.Request] = recs
	}
}

// remember notes that a request was added, and packs the one that was added so
// many ago that it need no longer be at hand.
func (s *openSet) remember(request uint64) {
	if len(s.recent) < recentRequests {
		s.recent = append(s.recent, request)
		return
	}
	if old := s.recent[s.next]; s.reqs[old] != nil {
		s.packed.put(old, s.reqs[old])
		s.reuse(s.reqs[old])
		delete(s.reqs, old)
	}
	s.recent[s.next] = request
	s.next = (s.next + 1) % recentRequests
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
	if len(s.free) < recentRequests {
		clear(recs)
		s.free = append(s.free, recs[:0])
	}
}

// recordsOf are those of a request, in the order of their sequence; none if it is
// not open. The caller must not change them.
func (s *openSet) recordsOf(request uint64) []Record {
	if recs := s.reqs[request]; recs != nil {
		return recs
	}
	return s.packed.records(request, nil)
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

// ordered are the numbers of records, and of their requests, that which selects
// of those of each open request, in order.
func (s *openSet) ordered(which func([]Record) []Record) (all []openRecord) {
	add := func(request uint64, recs []Record) {
		for _, r := range which(recs) {
			all = append(all, openRecord{r.Seq, request})
		}
	}
	for id, recs := range s.reqs {
		add(id, recs)
	}
	var recs []Record
	for id := range s.packed.at {
		recs = s.packed.records(id, recs[:0])
		add(id, recs)
	}
	slices.SortFunc(all, func(a, b openRecord) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// openRecord is a record of an open request.
type openRecord struct{ seq, request uint64 }

// records yields those of all open requests, in the order of the sequence, and
// says how many they are. Each is there only until the next one is asked for.
func (s *openSet) records() (n int, record func(i int) *Record) {
	all := s.ordered(func(recs []Record) []Record { return recs })
	var packed []Record
	return len(all), func(i int) *Record {
		recs, fresh := s.reqs[all[i].request]
		if !fresh {
			packed = s.packed.records(all[i].request, packed[:0])
			recs = packed
		}
		return &recs[slices.IndexFunc(recs, func(r Record) bool { return r.Seq == all[i].seq })]
	}
}

// stories yields the records of each open request, in the order in which they began.
func (s *openSet) stories() iter.Seq[[]Record] {
	return func(yield func([]Record) bool) {
		for _, first := range s.ordered(func(recs []Record) []Record { return recs[:1] }) {
			if !yield(s.recordsOf(first.request)) {
				return
			}
		}
	}
}
