package sim

import (
	"container/heap"

	"github.com/dmxfs/dmxfs/locks"
)

type kind uint8

const (
	arrival kind = iota // a node's program wants the CS
	deliver             // a message comes
	exit                // a node leaves the CS
	expire              // what a node keeps has not been used for long enough
)

// event is what will happen at a node.
type event struct {
	kind kind
	node int
	from int           // deliver
	msg  locks.Message // deliver
	use  int           // expire: the last use when it was scheduled
}

// due says when an event comes up. The order among those of one instant is the
// upper bits, which are drawn, and then that of scheduling.
type due struct {
	at    Time
	order uint64
	slot  int32 // of the agenda's events
}

func (d due) before(o due) bool {
	return d.at < o.at || d.at == o.at && d.order < o.order
}

const (
	seqBits = 40
	tieBits = 64 - seqBits
)

// agenda is the events to come. Its heap is that of container/heap, without
// heap.Push and heap.Pop, which would allocate for each event: this is where a
// simulation spends its time.
type agenda struct {
	heap   dueHeap
	events []event
	free   []int32
	seq    uint64
}

// dueHeap has what is due first at its root.
type dueHeap []due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(due)) }
func (h *dueHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// add schedules e; tie places it among the events of that instant.
func (a *agenda) add(at Time, tie uint64, e event) {
	var slot int32
	if n := len(a.free); n > 0 {
		slot, a.free = a.free[n-1], a.free[:n-1]
		a.events[slot] = e
	} else {
		slot = int32(len(a.events))
		a.events = append(a.events, e)
	}
	a.seq++
	a.heap = append(a.heap, due{at, tie<<seqBits | a.seq&(1<<seqBits-1), slot})
	heap.Fix(&a.heap, len(a.heap)-1)
}

// next takes the earliest event out.
func (a *agenda) next() (Time, event, bool) {
	if len(a.heap) == 0 {
		return 0, event{}, false
	}
	first, last := a.heap[0], len(a.heap)-1
	a.heap[0] = a.heap[last]
	a.heap = a.heap[:last]
	if last > 0 {
		heap.Fix(&a.heap, 0)
	}
	e := a.events[first.slot]
	a.events[first.slot] = event{}
	a.free = append(a.free, first.slot)
	return first.at, e, true
}
