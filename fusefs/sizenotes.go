package fusefs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Who was told a size that the kernel takes over late, see settled.go, is noted for the
// process that goes on if this one is killed: a lock that comes there has to wait, too. It
// is noted before the answer is out; before that the request is under way, and is done again.
//
// A thread has one such answer at a time. So the notes are a table in which a thread has the
// place of its number, or the next one that is free.

const sizeNotes = 1024

// sizeNote is one of them. Whoever is killed while it is written has answered neither of the
// two that it may be of then: not the new one, and the one before is over.
type sizeNote struct {
	node atomic.Uint64 // 0: it is free
	size atomic.Int64
	at   atomic.Int64 // on the server's clock
	tid  atomic.Uint32
	_    uint32
}

// sizeTable are the notes of this process.
type sizeTable struct {
	mu    sync.Mutex
	notes *[sizeNotes]sizeNote
}

// put notes a; over reports whether a note of another thread counts no more. It reports
// whether there was room.
func (t *sizeTable) put(node uint64, a *sizeAnswer, over func(tid uint32, at int64) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range uint32(sizeNotes) {
		x := &t.notes[(a.tid+i)%sizeNotes]
		if tid := x.tid.Load(); x.node.Load() != 0 && tid != a.tid && !over(tid, x.at.Load()) {
			continue
		}
		x.node.Store(0)
		x.tid.Store(a.tid)
		x.size.Store(a.size)
		x.at.Store(a.at)
		x.node.Store(node)
		return true
	}
	return false
}

// readSizes finds who was told a size when the process was killed. When that was makes little
// difference, and what is noted of it is of its clock.
func (r *ledgerReader) readSizes(notes *[sizeNotes]sizeNote) {
	for i := range notes {
		x := &notes[i]
		j, ok := r.nodes[x.node.Load()]
		if at := x.at.Load(); !ok || r.Nodes[j].Kind != unix.S_IFREG || at < r.now-takenOver || at > r.now || x.tid.Load() == 0 {
			continue
		}
		n := &r.Nodes[j]
		n.Answers = append(n.Answers, savedAnswer{TID: x.tid.Load(), Size: x.size.Load(), At: r.now})
	}
}
