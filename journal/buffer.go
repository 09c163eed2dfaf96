package journal

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// buffer is the records that are not yet in the store, in order: those that
// wait for the writer, and before them those that it is writing. Append is on
// the path of every lock, so it does nothing but copy the record.
type buffer struct {
	mu sync.Mutex
	// next is the sequence number of the next record.
	next uint64
	// chunks hold what waits; the last one has room.
	chunks []*chunk
	n      int // records in chunks
	// writing are what the writer took; they go when it says that they are
	// stored.
	writing  []*chunk
	nWriting int
	stored   uint64 // all up to this record are in the store, or were dropped
	free     []*chunk
	limit    int // of n + nWriting
	closed   bool
	// lossy: the writer fails, or somebody waited for it in vain, and it has
	// not stored anything since. Nobody waits for room then.
	lossy bool
	// crowded is isCrowded, to be looked at without mu.
	crowded atomic.Bool
	drops   drops
	// dropped counts those that drops no longer has.
	dropped uint64
	// spare is closed when records were stored; nil when nobody waits for it.
	spare chan struct{}
	// follow is closed when records were appended; nil when nobody waits.
	follow chan struct{}
	// due is set by a first record, to the delay after it: then the writer is
	// to write. So it sleeps meanwhile, and not only until there is a record.
	due   *time.Timer
	delay time.Duration
	// wake tells the writer that there is a record that can't wait.
	wake   chan struct{} // of 1
	urgent bool
}

// chunk is a piece of the buffer. With pieces, a burst costs memory only while
// it lasts, and nothing is copied when the buffer grows. They are small, since
// those who append have others wait, and may have to help the garbage collector
// for as much as they allocate.
type chunk struct {
	n    int
	recs [chunkRecords]Record
}

const (
	chunkRecords = 64
	freeChunks   = 32

	// bufferLimit bounds the memory to about 20 MB, and strings. At the most
	// that programs can lock on two cores, that is half a second.
	bufferLimit = 64 << 10
	// Pace waits roomWait for the writer to store something, and roomWaits times
	// that at most.
	roomWait  = 250 * time.Millisecond
	roomWaits = 4
)

// drops counts what had to be dropped since the writer last asked.
type drops struct {
	n           int
	first, last uint64
	// ended are requests whose last record was dropped, as far as they fit.
	ended map[uint64]struct{}
}

// append adds r, and gives it the next number. It never waits: what does not fit
// is counted, and not kept.
func (b *buffer) append(r *Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	r.Seq = b.next
	b.next++
	if b.n+b.nWriting < b.limit {
		b.put(r)
	} else {
		b.drop(r)
	}
	b.crowded.Store(b.isCrowded())
}

// isCrowded reports whether those should wait who can. The last quarter is for
// those who can't.
func (b *buffer) isCrowded() bool { return b.n+b.nWriting >= max(b.limit-b.limit/4, 1) }

// isBusy is isCrowded for who has much to append.
func (b *buffer) isBusy() bool { return b.n+b.nWriting >= max(b.limit/2, 1) }

func (b *buffer) put(r *Record) {
	var c *chunk
	if k := len(b.chunks); k > 0 && b.chunks[k-1].n < chunkRecords {
		c = b.chunks[k-1]
	} else {
		c = b.newChunk()
		b.chunks = append(b.chunks, c)
	}
	c.recs[c.n] = *r
	c.n++
	b.n++
	switch {
	case r.Event.urgent() || b.n == b.limit/4:
		if !b.urgent {
			b.urgent = true
			b.signal()
		}
	case b.n == 1:
		b.due.Reset(b.delay)
	}
	if b.follow != nil {
		close(b.follow)
		b.follow = nil
	}
}

func (b *buffer) newChunk() *chunk {
	if n := len(b.free); n > 0 {
		c := b.free[n-1]
		b.free = b.free[:n-1]
		return c
	}
	return new(chunk)
}

// signal wakes the writer.
func (b *buffer) signal() {
	select {
	case b.wake <- struct{}{}:
	default: // it has been told
	}
}

// pace waits until the buffer is not crowded, or not busy if the caller has much to
// append: for roomWait without progress of the
// writer, and roomWaits times that in all. It does not wait when the writer
// fails.
func (b *buffer) pace(much bool) {
	full := b.isCrowded
	if much {
		full = b.isBusy
	} else if !b.crowded.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := time.NewTimer(roomWait)
	defer t.Stop()
	for waits := 0; full() && !b.closed && !b.lossy && waits < roomWaits; waits++ {
		if b.spare == nil {
			b.spare = make(chan struct{})
		}
		spare := b.spare
		t.Reset(roomWait)
		b.mu.Unlock()
		select {
		case <-spare:
		case <-t.C:
		}
		b.mu.Lock()
		if b.spare == spare {
			b.lossy = true // nothing was stored: nobody else need wait
		}
	}
}

// failing tells that the writer can't store anything for now.
func (b *buffer) failing() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lossy = true
	b.release()
}

// release lets those look that wait for room. REQUIRES: mu held.
func (b *buffer) release() {
	if b.spare != nil {
		close(b.spare)
		b.spare = nil
	}
}

// drop counts a record that is not kept.
func (b *buffer) drop(r *Record) {
	d := &b.drops
	if d.n == 0 {
		d.first = r.Seq
		d.ended = make(map[uint64]struct{})
	}
	d.n++
	d.last = r.Seq
	if r.Request != 0 && r.ends() && len(d.ended) < b.limit {
		d.ended[r.Request] = struct{}{}
	}
}

// takeDrops is how many records were dropped since the last call, and which.
func (b *buffer) takeDrops() drops {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.drops
	b.drops = drops{}
	b.dropped += uint64(d.n)
	return d
}

// close lets nothing more in, and wakes those that wait for room.
func (b *buffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.release()
}

// take moves up to about max of the waiting records to the writer. It is
// called when nothing is being written.
func (b *buffer) take(max int) []*chunk {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := min(len(b.chunks), (max+chunkRecords-1)/chunkRecords)
	b.writing = append(b.writing, b.chunks[:k]...)
	b.chunks = slices.Delete(b.chunks, 0, k) // which forgets them
	for _, c := range b.writing {
		b.nWriting += c.n
	}
	b.n -= b.nWriting
	b.urgent = b.urgent && b.n > 0
	return b.writing
}

// done forgets what was taken: it is stored.
func (b *buffer) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := len(b.writing); k > 0 {
		last := b.writing[k-1]
		b.stored = last.recs[last.n-1].Seq
	}
	for _, c := range b.writing {
		if len(b.free) < freeChunks {
			clear(c.recs[:c.n]) // strings
			c.n = 0
			b.free = append(b.free, c)
		}
	}
	clear(b.writing)
	b.writing, b.nWriting = b.writing[:0], 0
	b.lossy = false
	b.crowded.Store(b.isCrowded())
	b.release()
}

// last is the number of the last record.
func (b *buffer) last() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next - 1
}

// after copies up to len(to) of the buffered records whose number is greater
// than seq, in order. The records up to stored are in the store, or nowhere.
// next is closed when there may be more than when after was called.
func (b *buffer) after(seq uint64, to []Record) (n int, stored uint64, next <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, cs := range [...][]*chunk{b.writing, b.chunks} {
		for _, c := range cs {
			if c.n == 0 || c.recs[c.n-1].Seq <= seq {
				continue
			}
			for i := 0; i < c.n && n < len(to); i++ {
				if c.recs[i].Seq > seq {
					to[n] = c.recs[i]
					n++
				}
			}
		}
	}
	if b.follow == nil {
		b.follow = make(chan struct{})
	}
	return n, b.stored, b.follow
}
