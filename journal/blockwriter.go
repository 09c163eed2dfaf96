package journal

import (
	"encoding/binary"

	"github.com/dmxfs/dmxfs/locks"
)

// blockWriter gathers records into blocks. Its memory is used again: what take
// returns is valid until reset.
type blockWriter struct {
	// What the next blocks say about the journal. Set by the owner.
	node  locks.NodeID
	age   uint64
	floor uint64
	// next is the number after the last record's.
	next uint64

	cur  block // what is being gathered; its body is in body
	ctx  blockContext
	body []byte
	one  []byte // the record at hand
	bufs blockBuffers
	out  []byte // finished blocks, one after the other
	ends []blockEnd
}

// blockEnd tells a finished block in out.
type blockEnd struct {
	head block // without its body
	end  int
}

// reset forgets the finished blocks.
func (w *blockWriter) reset() {
	w.out, w.ends = w.out[:0], w.ends[:0]
}

// add appends r to the current block, and finishes it when it is full. The
// sequence numbers of records grow.
func (w *blockWriter) add(r *Record) {
	if w.cur.count == 0 {
		w.cur = block{first: r.Seq, gap: r.Seq - w.next}
	}
	w.cur.last = r.Seq
	w.next = r.Seq + 1
	w.append(r)
	if w.cur.count == blockRecords || len(w.body) >= blockSize {
		w.finish()
	}
}

func (w *blockWriter) append(r *Record) {
	t := r.Time.UnixNano()
	if w.cur.count == 0 {
		w.cur.time, w.cur.oldest, w.cur.newest = t, t, t
		w.ctx = blockContext{seq: w.cur.first, time: t, node: w.node}
		if w.cur.state() {
			w.ctx.seq = 0
		}
	}
	w.cur.oldest, w.cur.newest = min(w.cur.oldest, t), max(w.cur.newest, t)
	w.one = appendRecord(w.one[:0], r, &w.ctx)
	w.ctx.seq = r.Seq
	w.body = binary.AppendUvarint(w.body, uint64(len(w.one)))
	w.body = append(w.body, w.one...)
	w.cur.count++
}

// finish ends the current block of records, if there is one.
func (w *blockWriter) finish() {
	if w.cur.count > 0 {
		w.emit()
	}
}

func (w *blockWriter) emit() {
	w.cur.node, w.cur.age, w.cur.floor = w.node, w.age, w.floor
	w.cur.body = w.body
	w.out = appendBlock(w.out, &w.cur, &w.bufs)
	w.cur.body = nil
	w.ends = append(w.ends, blockEnd{head: w.cur, end: len(w.out)})
	w.body = w.body[:0]
	w.cur = block{}
}

// state writes state blocks that stand before the record at: record are the n
// records of the open requests, in order, and the journal begins at floor. Only
// the last part says so: without it, what is before is still needed. The
// current block must be finished.
func (w *blockWriter) state(at uint64, closed bool, floor uint64, n int, record func(int) *Record) {
	flags := uint8(flagState)
	if closed {
		flags |= flagClosed
	}
	i := 0
	for part := uint16(0); ; part++ {
		w.cur = block{flags: flags, first: at, last: at, part: part}
		for i < n && w.cur.count < blockRecords && len(w.body) < blockSize {
			w.append(record(i))
			i++
		}
		if i < n {
			w.cur.flags |= flagMore
		} else {
			w.floor = floor
		}
		w.emit()
		if i == n {
			return
		}
	}
}

// pairs are the finished blocks as entries of the store.
func (w *blockWriter) pairs(to []pair) []pair {
	begin := 0
	for _, e := range w.ends {
		to = append(to, pair{key: e.head.key().bytes(), value: w.out[begin:e.end]})
		begin = e.end
	}
	return to
}
