package journal

import (
	"errors"
	"math"
	"time"
)

// Old records are deleted in four steps:
//
//  1. a state block that repeats the records of the open requests, and says
//     where the journal will begin, is written,
//  2. and synced. If we stop here, the next run finishes the job;
//  3. the index forgets what is before: nobody reads it from here on;
//  4. it is dropped. If we stop on the way, some of it may be left, and the
//     next run, or the next deletion of this one, drops that.

// retain deletes what is too much or too old, and writes a state now and then,
// from which the next run starts to read.
func (w *writer) retain() error {
	keep, cutoff := w.opt.MaxBytes, uint64(0)
	// When there are so many open requests that the state is a great part of
	// the journal, it takes as much again before the next one is written.
	if w.idx.bytes > keep && w.sinceState >= w.stateBytes {
		keep -= keep / 8
	} else {
		keep = math.MaxInt64
	}
	// To delete is work: age waits until there is a fourteenth to delete.
	max := uint64(w.opt.MaxAge / time.Second)
	if age := w.age.age(); age > max+max/14 && w.idx.oldest() < age-max-max/14 {
		cutoff = age - max
	}
	if floor := w.idx.surplus(keep, cutoff); floor > w.idx.floor {
		return w.cut(floor)
	}
	if w.sinceState >= w.opt.MaxBytes/8+w.stateBytes {
		return w.writeState(false, w.idx.floor)
	}
	return nil
}

// cut deletes all before floor.
func (w *writer) cut(floor uint64) error {
	if err := w.writeState(false, floor); err != nil {
		return err
	}
	if err := w.do(w.st.sync); err != nil {
		return err
	}
	w.idx.cut(floor)
	if err := w.do(func() error { return w.st.drop(floor) }); err != nil {
		// They are deleted for all who read. Their space comes back with the
		// next cut, or the next run.
		w.log.Warn("the space of old records can't be given back now", "error", err)
	}
	return nil
}

// writeState writes a state block that begins the journal at floor. Everything
// buffered must be written.
func (w *writer) writeState(closed bool, floor uint64) error {
	if w.encoded {
		return errors.New("records wait to be written")
	}
	w.w.reset()
	w.w.node, w.w.age, w.w.floor = w.opt.Node, w.age.age(), w.idx.floor
	n, record := w.open.records()
	w.w.state(w.idx.end, closed, floor, n, record)
	w.prs = w.w.pairs(w.prs[:0])
	size := int64(len(w.w.out))
	if err := w.store(); err != nil {
		return err
	}
	w.sinceState, w.stateBytes = 0, size
	return nil
}
