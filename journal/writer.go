package journal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// batchRecords is how many records are written at a time at most.
	batchRecords = 8192
	// batchBytes is how large a transaction may become; Badger takes one of
	// about 600 kB (15 % of a memory table).
	batchBytes = 256 << 10
	// retryEvery is how often a disk is tried that refused a write.
	retryEvery = 500 * time.Millisecond
	// tendEvery is how often the writer looks for records that are too old.
	tendEvery = time.Hour
)

// barrier is a call of Sync that waits.
type barrier struct{ done chan error }

// writer is the goroutine that owns the store, and its state.
type writer struct {
	*Journal
	syncT, retryT, tendT *time.Timer
	prs                  []pair // blocks to be written
	// encoded: prs hold what the buffer calls writing. They stay the same over
	// all tries to write them: what a failed try stored is written again.
	encoded  bool
	dirty    bool // something is stored but not synced
	urgent   bool // it should be
	retrying bool // retryT is set
	// stall fires while an operation of the store takes too long.
	stall   *time.Timer
	faultMu sync.Mutex // guards busy, and changes of fault
	busy    bool       // an operation is under way
	// sinceState is the bytes written since the last state, which took
	// stateBytes.
	sinceState, stateBytes int64
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// write is the writer's goroutine. It ends after Close.
func (j *Journal) write() {
	w := &writer{
		Journal: j,
		syncT:   stopped(), retryT: stopped(),
		tendT: time.NewTimer(tendEvery),
	}
	if s, ok := j.st.(*badgerStore); ok {
		s.mended = w.mended
	}
	w.stall = time.AfterFunc(time.Hour, w.stalled)
	w.stall.Stop()
	defer close(j.stopped)
	defer func() {
		for _, t := range []*time.Timer{w.buf.due, w.syncT, w.retryT, w.tendT, w.stall} {
			t.Stop()
		}
	}()
	for {
		select {
		case <-j.buf.wake:
			if !w.retrying {
				w.turn()
			}
		case <-j.buf.due.C:
			if !w.retrying {
				w.turn()
			}
		case <-w.syncT.C:
			w.urgent = w.dirty
			w.turn()
		case <-w.retryT.C:
			w.turn()
		case <-w.tendT.C:
			w.tendT.Reset(tendEvery)
			w.turn()
		case b := <-j.barriers:
			w.urgent = true
			b.done <- w.turn()
		case <-j.stop:
			j.endErr = w.end()
			return
		}
	}
}

// turn brings what is buffered to the disk, and does what else is due.
func (w *writer) turn() error {
	w.buf.due.Stop() // what comes from here on sets it again, or is written now
	w.retryT.Stop()
	err := w.work()
	if w.retrying = err != nil; w.retrying {
		w.faultMu.Lock()
		w.setFault(err)
		w.faultMu.Unlock()
		w.buf.failing()
		w.retryT.Reset(w.opt.retry)
		return fmt.Errorf("journal: %w", err)
	}
	w.healthy()
	w.reportDrops()
	return nil
}

func (w *writer) work() error {
	if err := w.flush(); err != nil {
		return err
	}
	if w.urgent {
		if err := w.do(w.st.sync); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		w.dirty, w.urgent = false, false
		w.syncT.Stop()
	}
	return w.retain()
}

// flush writes all that was buffered when it was called. What comes meanwhile
// waits for others in its turn, or wakes the writer: under load there would
// always be some more, and a batch of two costs as much as one of hundreds. It
// goes on while full batches wait: who appends faster than the disk takes it, a
// million records a second, makes a Sync wait until its context ends.
func (w *writer) flush() error {
	for more := true; more; {
		if !w.encoded {
			chunks := w.buf.take(batchRecords)
			if len(chunks) == 0 {
				return nil
			}
			more = len(chunks) == batchRecords/chunkRecords
			w.encode(chunks)
		}
		if err := w.store(); err != nil {
			return err
		}
		// If we stop here, the next run reads from the store what we now take
		// into the set of open requests.
		for _, c := range w.buf.writing {
			for i := range c.recs[:c.n] {
				w.open.apply(&c.recs[i])
			}
		}
		w.encoded = false
		w.buf.done()
	}
	return nil
}

// encode makes blocks of the records, in w.prs.
func (w *writer) encode(chunks []*chunk) {
	w.w.reset()
	w.w.node, w.w.age, w.w.floor = w.opt.Node, w.age.age(), w.idx.floor
	for _, c := range chunks {
		for i := range c.recs[:c.n] {
			r := &c.recs[i]
			w.urgent = w.urgent || r.Event.urgent()
			w.w.add(r)
		}
	}
	w.w.finish()
	w.prs = w.w.pairs(w.prs[:0])
	w.encoded = true
}

// store writes w.prs, all or, after an error, some of them.
func (w *writer) store() error {
	if err := w.st.room(); err != nil {
		return err
	}
	for from := 0; from < len(w.prs); {
		n, to := 0, from
		for to < len(w.prs) && (to == from || n+len(w.prs[to].value) <= batchBytes) {
			n += len(w.prs[to].value)
			to++
		}
		if err := w.do(func() error { return w.st.write(w.prs[from:to]) }); err != nil {
			return err
		}
		from = to
	}
	for i, e := range w.w.ends {
		size := len(w.prs[i].value)
		w.idx.add(&e.head, size)
		w.sinceState += int64(size + entrySize)
	}
	clear(w.prs)
	w.prs = w.prs[:0]
	if !w.dirty {
		w.dirty = true
		w.syncT.Reset(w.opt.SyncEvery)
	}
	return nil
}

// reportDrops tells of records that were dropped, and ends those requests in
// the journal whose end was among them.
func (w *writer) reportDrops() {
	d := w.buf.takeDrops()
	if d.n == 0 {
		return
	}
	w.log.Error("the journal dropped records that it could not hold", "records", d.n, "first", d.first, "last", d.last)
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(d.ended)) {
		if recs := w.open.recordsOf(id); recs != nil {
			r := story(recs)
			r.Time, r.Event, r.Final = now, Released, true
			r.Reason = "how it ended is not known: the record was dropped"
			if !held(recs) {
				r.Event, r.Final = Withdrawn, false
			}
			w.buf.append(&r)
		}
	}
	w.Append(Record{
		Time: now, Event: Note,
		Reason: fmt.Sprintf("%d records from %d to %d were dropped: the disk did not take them, and memory is limited",
			d.n, d.first, d.last),
	})
}

// end is the last turn. It does not try twice.
func (w *writer) end() error {
	w.buf.close()
	err := w.flush()
	if err == nil {
		err = w.writeState(true, w.idx.floor)
	}
	if err == nil {
		err = w.do(w.st.sync)
	}
	if err != nil {
		w.buf.mu.Lock()
		n := w.buf.n + w.buf.nWriting
		w.buf.mu.Unlock()
		err = fmt.Errorf("%d records were not written: %w", n, err)
	}
	if cerr := w.do(w.st.close); err == nil || !errors.Is(cerr, ErrNoSpace) {
		err = errors.Join(err, cerr)
	}
	if w.dir != nil {
		err = errors.Join(err, w.dir.release())
	}
	if err != nil {
		return fmt.Errorf("journal: closing: %w", err)
	}
	return nil
}
