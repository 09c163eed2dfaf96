package journal

import (
	"cmp"
	"slices"
)

// openSet is the requests that have begun and not ended, each with the records
// that tell its story so far. It is the writer's.
type openSet struct {
	reqs map[uint64]*openRequest
	free []*openRequest // to be used again
}

// openRequest keeps the last record of each kind: of a request that waits for
// one node after the other, or gives up its range byte by byte, the rest is
// only history.
type openRequest struct {
	recs []Record // in the order of their sequence
}

func newOpenSet() *openSet { return &openSet{reqs: make(map[uint64]*openRequest)} }

// apply takes account of a record.
func (s *openSet) apply(r *Record) {
	if r.Request == 0 || r.Event > Lost {
		return
	}
	q := s.reqs[r.Request]
	if r.ends() {
		if q != nil {
			delete(s.reqs, r.Request)
			if len(s.free) < 1024 {
				clear(q.recs)
				q.recs = q.recs[:0]
				s.free = append(s.free, q)
			}
		}
		return
	}
	if q == nil {
		if r.Event != Requested && r.Event != Granted {
			return // late: it has ended
		}
		if n := len(s.free); n > 0 {
			q, s.free = s.free[n-1], s.free[:n-1]
		} else {
			q = &openRequest{recs: make([]Record, 0, 2)}
		}
		s.reqs[r.Request] = q
	}
	for i := range q.recs {
		if q.recs[i].Event == r.Event {
			q.recs = slices.Delete(q.recs, i, i+1)
			break
		}
	}
	q.recs = append(q.recs, *r)
}

// held reports whether the program holds something.
func (q *openRequest) held() bool {
	return slices.ContainsFunc(q.recs, func(r Record) bool {
		return r.Event == Granted || r.Event == Released
	})
}

// story is one record that has all that is known of the request: of its last
// grant, if there was one, else of the last record.
func (q *openRequest) story() *Record {
	for i := range q.recs {
		if q.recs[i].Event == Granted {
			return &q.recs[i]
		}
	}
	return &q.recs[len(q.recs)-1]
}

// records are those of all open requests, in the order of the sequence.
func (s *openSet) records() []*Record {
	var all []*Record
	for _, q := range s.reqs {
		for i := range q.recs {
			all = append(all, &q.recs[i])
		}
	}
	slices.SortFunc(all, func(a, b *Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return all
}
