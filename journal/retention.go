package journal

import "errors"

// Old records are deleted in four steps:
//
//  1. a state block that repeats the records of the open requests, and says
//     where the journal will begin, is written,
//  2. and synced. If we stop here, the next run finishes the job;
//  3. what is before is dropped. If we stop here, some of it may be left, and
//     the next run drops it, since it reads the state block first;
//  4. the index forgets it.

// retain deletes what is too much or too old, and writes a state block now and
// then, from which the next run starts to read.
func (w *writer) retain() error {
	floor := w.idx.floor
	over := w.idx.bytes > w.opt.MaxBytes
	if keep := w.opt.MaxBytes; over {
		floor = w.idx.surplus(keep-keep/8, 0)
	}
	// To delete is work, so age waits until there is a fourteenth to delete.
	if age, max := w.age.age(), uint64(w.opt.MaxAge.Seconds()); age > max+max/14 {
		if w.idx.surplus(w.opt.MaxBytes, age-max-max/14) > w.idx.floor {
			floor = w.idx.surplus(w.opt.MaxBytes, age-max)
			if over {
				floor = w.idx.surplus(w.opt.MaxBytes-w.opt.MaxBytes/8, age-max)
			}
		}
	}
	switch {
	case floor > w.idx.floor:
		return w.cut(floor)
	case w.sinceState > w.opt.MaxBytes/8:
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
	if err := w.do(func() error { return w.st.drop(blockKey{}, before(floor)) }); err != nil {
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
	w.w.node, w.w.age, w.w.floor = w.opt.Node, w.age.age(), floor
	w.w.state(w.idx.end, closed, w.open.records())
	w.prs = w.w.pairs(w.prs[:0])
	if err := w.store(); err != nil {
		return err
	}
	w.sinceState = 0
	return nil
}
