package fusefs

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// writesFirst has reads of a file wait for the writes that came before them, while the
// kernel drops pages behind a process that was killed.
//
// The kernel puts the data of a WRITE into a page that it has before it sends the request,
// and lets others use that page meanwhile. If the page is dropped then, and read again
// before the WRITE is done, it has zeros where that makes the file longer; and the answer
// to the WRITE makes them seen. A page that is read after the WRITE is done has its data.
type writesFirst struct {
	on atomic.Bool // a request may have to wait, or be waited for

	mu    sync.Mutex
	over  bool                       // no other WRITE has to be waited for
	under map[uint64][]chan struct{} // by node: closed when a WRITE is answered
}

// writesTime is how long a read waits for writes at most: one of those may wait for another
// host, and perhaps for what the kernel cannot drop before the read is answered.
const writesTime = time.Second

func (w *writesFirst) begin() {
	w.under = make(map[uint64][]chan struct{})
	w.on.Store(true)
}

// end: what is asked for from now on finds no page that is about to be dropped.
func (w *writesFirst) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.on.Store(len(w.under) > 0)
}

// write is called when a WRITE is read, and what it returns when that is answered.
func (w *writesFirst) write(in *fuse.InHeader) (answered func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return func() {}
	}
	node, c := in.NodeId, make(chan struct{})
	w.under[node] = append(w.under[node], c)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		close(c)
		rest := w.under[node][:0:0]
		for _, x := range w.under[node] {
			if x != c {
				rest = append(rest, x)
			}
		}
		if w.under[node] = rest; len(rest) == 0 {
			delete(w.under, node)
		}
		w.on.Store(!w.over || len(w.under) > 0)
	}
}

// await waits until the writes of a node that are under way are answered, or dead is closed.
func (w *writesFirst) await(in *fuse.InHeader, dead <-chan struct{}) {
	w.mu.Lock()
	all := w.under[in.NodeId]
	w.mu.Unlock()
	if len(all) == 0 {
		return
	}
	late := time.NewTimer(writesTime)
	defer late.Stop()
	for _, c := range all {
		select {
		case <-c:
		case <-late.C:
			return
		case <-dead:
			return
		}
	}
}

// before is called before the request in is handled, and what it returns afterwards.
func (w *writesFirst) before(in []byte, dead <-chan struct{}) (answered func()) {
	switch head(in).Opcode {
	case opWrite:
		return w.write(head(in))
	case opRead:
		w.await(head(in), dead)
	}
	return func() {}
}
