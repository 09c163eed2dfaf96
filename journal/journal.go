package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Journal is an open journal. Its methods are safe for concurrent use.
type Journal struct {
	opt Options
	log *slog.Logger
	dir *directory // nil in memory
	st  store

	buf buffer
	idx index

	// Owned by the writer.
	age  ageClock
	open *openSet
	w    blockWriter

	readOnly bool
	recovery Recovery
	fault    atomic.Pointer[fault] // why the disk is not written; nil: it is
	damage   damageLog

	barriers  chan barrier
	stop      chan struct{} // closed by Close
	stopped   chan struct{} // closed when the writer has ended
	closeOnce sync.Once
	closeErr  error // of Close
	endErr    error // the writer's last, before stopped
}

// begin reads what is there, and starts the writer.
func (j *Journal) begin() error {
	if err := j.restore(); err != nil {
		return err
	}
	go j.write()
	return nil
}

// Append adds a record. It returns at once: the record is written some
// milliseconds later, see [Options.Delay] and [Journal.Sync].
//
// When the disk refuses writes, or can't keep up, records are kept in memory up
// to a limit (64 Ki). Beyond it Append drops the record. What was dropped is
// counted, in [Stats] and in a record of its own. After Close all records are
// dropped. Who can wait calls Pace before.
func (j *Journal) Append(r Record) {
	if j.readOnly {
		return // see noteDamage
	}
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	if r.Node == "" {
		r.Node = j.opt.Node
	}
	j.buf.append(&r)
}

// Pace returns when there is room for some records, so that none is dropped only
// since a disk is slower than those who append: at once, mostly. As long as the
// disk goes on it waits, for a quarter of a second without progress, and a second
// in all. Who has much to append leaves room for others: it waits sooner.
func (j *Journal) Pace(much bool) {
	if !j.readOnly {
		j.buf.pace(much)
	}
}

// Crowded reports whether Pace(false) waits.
func (j *Journal) Crowded() bool { return !j.readOnly && j.buf.crowded.Load() }

// Healthy is nil while records reach the disk. Else it tells why they don't:
// the disk is full, it fails, or a write takes very long. It turns healthy
// again by itself. It costs next to nothing.
func (j *Journal) Healthy() error {
	if f := j.fault.Load(); f != nil {
		return f.err
	}
	return nil
}

// Recovery is what Open found.
func (j *Journal) Recovery() Recovery { return j.recovery }

// Sync returns when all records that were appended before the call can't be
// lost any more, by a crash of the daemon or of the host, or with the reason
// why they still can: the error of [Journal.Healthy], or ctx's.
func (j *Journal) Sync(ctx context.Context) error {
	if j.readOnly {
		return nil
	}
	b := barrier{done: make(chan error, 1)}
	select {
	case j.barriers <- b:
	case <-j.stopped:
		return fmt.Errorf("journal: %w", ErrClosed)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-b.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closeWait is how long Close waits for the disk.
const closeWait = 10 * time.Second

// Close writes what is left, marks the journal as closed, and lets go of the
// directory. It returns within some seconds also when the disk hangs, with an
// error; the process should then end.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() { j.closeErr = j.close() })
	return j.closeErr
}

func (j *Journal) close() error {
	close(j.stop)
	if j.readOnly {
		return errors.Join(j.st.close(), j.dir.release())
	}
	t := time.NewTimer(closeWait)
	defer t.Stop()
	select {
	case <-j.stopped:
	case <-t.C:
		return fmt.Errorf("journal: closing: the disk does not answer for %v", closeWait)
	}
	return j.endErr
}
