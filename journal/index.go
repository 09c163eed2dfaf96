package journal

import (
	"math"
	"slices"
	"sync"
)

// index is a coarse map of the blocks in the store, in memory: for retention,
// to know what to delete; for queries, to know where not to look.
type index struct {
	// grain and span are how many bytes, and how many seconds of the
	// journal's age, an extent covers.
	grain int64
	span  uint64

	mu sync.RWMutex
	// extents are in the order of the sequence. The last one still grows.
	extents []extent
	bytes   int64 // sum over the extents
	records uint64
	// floor: nothing of the sequence before it is there any more.
	floor uint64
	// state is where the newest state blocks stand, if hasState.
	state    uint64
	hasState bool
	// end is the number after the last one that a block accounts for.
	end uint64
}

// extent is some consecutive blocks.
type extent struct {
	first          uint64
	records        uint64
	bytes          int64
	age            uint64 // of the youngest block
	firstAge       uint64 // of the oldest block
	oldest, newest int64  // wall clock
}

// entrySize is what an entry takes in the store beside its value: key and
// version, in the table and its index.
const entrySize = 48

// add takes account of a block that was stored.
func (x *index) add(b *block, size int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := int64(size + entrySize)
	x.bytes += n
	x.floor = max(x.floor, b.floor)
	if b.state() {
		x.state, x.hasState = b.first, b.flags&flagMore == 0
	} else {
		x.end = b.last + 1
		x.records += uint64(b.count)
	}
	e := x.lastExtent()
	if e == nil || e.bytes >= x.grain || b.age-e.firstAge > x.span {
		x.extents = append(x.extents, extent{
			first: b.first, firstAge: b.age,
			oldest: math.MaxInt64, newest: math.MinInt64,
		})
		e = x.lastExtent()
	}
	e.bytes += n
	e.age = b.age
	if !b.state() {
		e.records += uint64(b.count)
		e.oldest = min(e.oldest, b.oldest)
		e.newest = max(e.newest, b.newest)
	}
}

func (x *index) lastExtent() *extent {
	if len(x.extents) == 0 {
		return nil
	}
	return &x.extents[len(x.extents)-1]
}

// surplus is the sequence number that the journal should begin at: so much
// that no more than keep bytes are left, and that nothing is older than age
// cutoff. It is the present floor when there is nothing to delete.
func (x *index) surplus(keep int64, cutoff uint64) uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	floor, bytes := x.floor, x.bytes
	for i := range x.extents {
		e := &x.extents[i]
		if bytes <= keep && e.age >= cutoff {
			break
		}
		bytes -= e.bytes
		floor = x.end
		if i+1 < len(x.extents) {
			floor = x.extents[i+1].first
		}
	}
	return floor
}

// oldest is the age at which the newest block of the oldest extent was
// written, or the greatest age if there is none.
func (x *index) oldest() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(x.extents) == 0 {
		return math.MaxUint64
	}
	return x.extents[0].age
}

// begin is where a query has to begin to read.
func (x *index) begin(m *matcher) blockKey {
	x.mu.RLock()
	defer x.mu.RUnlock()
	i := 0
	for i+1 < len(x.extents) && (x.extents[i+1].first <= m.After || x.extents[i].newest < m.since) {
		i++
	}
	if m.Last > 0 && m.all() {
		i = len(x.extents) - 1
		for n := uint64(0); i > 0; i-- {
			if n += x.extents[i].records; n >= uint64(m.Last) {
				break
			}
		}
	}
	if i < 0 || i >= len(x.extents) {
		return blockKey{}
	}
	return before(x.extents[i].first)
}

// cut forgets what is before floor.
func (x *index) cut(floor uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.IndexFunc(x.extents, func(e extent) bool { return e.first >= floor })
	if i < 0 {
		i = len(x.extents)
	}
	for _, e := range x.extents[:i] {
		x.bytes -= e.bytes
		x.records -= e.records
	}
	x.extents = slices.Delete(x.extents, 0, i)
	x.floor = max(x.floor, floor)
}
