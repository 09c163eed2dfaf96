package fusefs

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmxfs/dmxfs/internal/writegate"
)

// base is what all parts of a mount share. Its fields are set before the mount
// serves, and do not change any more; what they lead to has mutexes of its own.
type base struct {
	opts    Options
	log     *slog.Logger
	locker  Locker
	storage Storage
	acls    bool // the storage has POSIX ACLs

	conn  *conn
	dev   device
	fds   int // descriptor of /proc/self/fd
	start time.Time

	entryTTL, attrTTL time.Duration

	tree    *tree
	devices *devices
	procs   *processes
	handles registry[handle]
	dirs    registry[dirHandle]
	lastID  atomic.Uint64 // the newest handle

	arrivals arrivals
	stats    counters
	pause    *pausing
	ledger   *ledger // or nil
	redo     redo    // what a process that was killed has left
	point    point

	tasks sync.WaitGroup // what background started
}

// arrivals are the locks that have come here from other nodes: what was found out
// before the last one may be outdated.
type arrivals struct {
	all      atomic.Uint64             // how many; it changes when the client of the storage has looked anew
	explicit atomic.Uint64             // of these the explicit ones, which may be what protects any file
	last     atomic.Pointer[time.Time] // when; nil for never
}

// gate is what keeps writes apart from what must not meet one, or nil where nothing
// minds them.
func (b *base) gate() *writegate.Gate {
	if !b.storage.KeepsNames {
		return nil
	}
	return b.opts.Writes
}

// background runs a task that ends by itself, or when the mount does.
func (b *base) background(task func()) {
	b.pause.busy.Add(1)
	b.tasks.Go(func() {
		defer b.pause.busy.Add(-1)
		task()
	})
}

func (b *base) newID() uint64 {
	id := b.lastID.Add(1)
	b.ledger.reserve(handleIDs, id)
	return id
}

// fenced notes that h answers EIO from now on.
func (b *base) fenced(h *handle) {
	h.lost.Store(true)
	b.ledger.flag(h, handleLost)
}

// now is the server's clock: milliseconds since it was made, at least 1.
func (b *base) now() int64 { return time.Since(b.start).Milliseconds() + 1 }
