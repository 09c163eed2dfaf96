package engine

import (
	"container/list"
	"iter"
	"maps"

	"github.com/dmxfs/dmxfs/locks"
)

// maxClean bounds what is remembered of keys without an entry. A key that was
// forgotten costs a needless Refresh, nothing else.
const maxClean = 1 << 16

// recent is a set of keys that forgets the oldest.
type recent struct {
	limit int
	order *list.List
	at    map[locks.Key]*list.Element
}

func newRecent(limit int) *recent {
	return &recent{limit: limit, order: list.New(), at: map[locks.Key]*list.Element{}}
}

func (s *recent) put(k locks.Key) {
	if s.at[k] != nil {
		return
	}
	s.at[k] = s.order.PushBack(k)
	if s.order.Len() > s.limit {
		delete(s.at, s.order.Remove(s.order.Front()).(locks.Key))
	}
}

// take removes k and reports whether it was there.
func (s *recent) take(k locks.Key) bool {
	el := s.at[k]
	if el == nil {
		return false
	}
	s.order.Remove(el)
	delete(s.at, k)
	return true
}

func (s *recent) clear() {
	s.order.Init()
	clear(s.at)
}

func (s *recent) has(k locks.Key) bool { return s.at[k] != nil }

func (s *recent) len() int { return s.order.Len() }

func (s *recent) keys() iter.Seq[locks.Key] { return maps.Keys(s.at) }
