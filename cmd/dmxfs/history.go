package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/trouble"
	"github.com/dmxfs/dmxfs/journal"
)

// history is the journal of a daemon. Where its disk is full or fails when the
// daemon starts it is kept in memory at first, and gets to the disk as soon as
// that takes it: who loses a local disk loses no locks.
type history struct {
	log  *slog.Logger
	dir  string
	opts journal.Options

	mu    sync.RWMutex // held for writing while j changes
	j     *journal.Journal
	late  error         // why j is in memory; nil: it is on the disk, or about to be
	tried chan struct{} // closed when the disk was tried
	done  chan struct{}
	stop  context.CancelFunc
	// settle has it go to the disk, if it is to wait for that; it does not wait.
	settle func()
}

const (
	// memoryHistory is how much of the history is kept in memory.
	memoryHistory = 16 << 20
	// historyEvery is how often a disk is tried that the journal could not be
	// opened on.
	historyEvery = 2 * time.Second
	// lastRecords is how many records are moved while others wait.
	lastRecords = 64
)

// diskTroubles are those of a journal that its daemon can do without for a while.
var diskTroubles = []error{
	journal.ErrNoSpace, unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ENXIO, unix.ENODEV, unix.ESTALE, unix.EUCLEAN,
}

// openHistory opens the journal in dir. required: without its disk there is none.
func openHistory(dir string, o journal.Options, required bool) (*history, error) {
	h, err := openOnDisk(dir, o)
	if err == nil {
		return h, nil
	}
	if required || !trouble.IsOneOf(err, diskTroubles) {
		return nil, err
	}
	ctx, err := h.openInMemory()
	if err != nil {
		return nil, err
	}
	h.setLate(h.tryDisk(ctx)) // for the reason
	close(h.tried)
	if h.late == nil {
		close(h.done)
		return h, nil
	}
	h.log.Error("the journal cannot be opened: history is kept in memory as far as it goes, until it can", "err", h.late)
	go h.follow(ctx)
	return h, nil
}

// resumeHistory opens the journal that the program before this one has written in
// the same process, and in which what is open goes on. It waits for the disk only
// where there is no lock without it; else it goes there when settle is called. Where
// the disk fails locks are as they are whenever it does.
func resumeHistory(dir string, o journal.Options, required bool) (*history, error) {
	o.GoesOn = true
	var late error
	h := newHistory(dir, o)
	if required {
		if h, late = openOnDisk(dir, o); late == nil {
			return h, nil
		}
	}
	ctx, err := h.openInMemory()
	if err != nil {
		return nil, err
	}
	h.late = late
	h.settle = sync.OnceFunc(func() { go h.begin(ctx) })
	return h, nil
}

// begin has what is in memory go to the disk.
func (h *history) begin(ctx context.Context) {
	err := h.tryDisk(ctx)
	if err != nil {
		h.setLate(err)
		h.log.Error("the journal cannot be opened: history is kept in memory as far as it goes, until it can", "err", err)
	}
	close(h.tried)
	if err == nil {
		close(h.done)
		return
	}
	h.follow(ctx)
}

func newHistory(dir string, o journal.Options) *history {
	return &history{log: o.Logger, dir: dir, opts: o, tried: make(chan struct{}), done: make(chan struct{}), stop: func() {}, settle: func() {}}
}

// openOnDisk opens the journal; with an error it is not open at all yet.
func openOnDisk(dir string, o journal.Options) (*history, error) {
	h := newHistory(dir, o)
	j, err := journal.Open(dir, o)
	if err != nil {
		return h, err
	}
	h.j = j
	close(h.tried)
	close(h.done)
	return h, nil
}

// openInMemory has the history in memory; ctx ends with it.
func (h *history) openInMemory() (ctx context.Context, err error) {
	small := h.opts
	small.MaxBytes = memoryHistory
	if h.j, err = journal.OpenMemory(small); err != nil {
		return nil, err
	}
	ctx, h.stop = context.WithCancel(context.Background())
	return ctx, nil
}

func (h *history) setLate(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late = err
}

// follow tries until the journal is on the disk, or ctx ends.
func (h *history) follow(ctx context.Context) {
	defer close(h.done)
	tick := time.NewTicker(historyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := h.tryDisk(ctx)
		if err == nil {
			h.log.Info("the journal is on the disk")
			return
		}
		h.setLate(err)
	}
}

// tryDisk opens the journal on the disk, and moves what is in memory there. What
// the last run left open is closed before that.
func (h *history) tryDisk(ctx context.Context) error {
	disk, err := journal.Open(h.dir, h.opts)
	if err != nil {
		return err
	}
	memory := h.j // only this changes it
	last := uint64(0)
	move := func(wait bool) (n int, err error) {
		err = memory.Query(ctx, journal.Filter{After: last}, func(r journal.Record) error {
			if gap := r.Seq - last - 1; gap > 0 {
				disk.Append(journal.Record{Event: journal.Note, Reason: fmt.Sprintf(
					"%d records are missing here: the journal's disk did not take them when the daemon started, and memory is limited", gap)})
			}
			if wait {
				disk.Pace(true)
			}
			last = r.Seq
			disk.Append(r)
			n++
			return nil
		})
		return n, err
	}
	for n := lastRecords + 1; n > lastRecords && err == nil; {
		n, err = move(true)
	}
	if err == nil {
		h.mu.Lock()
		if _, err = move(false); err == nil {
			h.j, h.late = disk, nil
		}
		h.mu.Unlock()
	}
	if err != nil {
		return errors.Join(err, disk.Close())
	}
	logRecovery(h.log, disk.Recovery())
	return memory.Close()
}

// now is the journal that is written.
func (h *history) now() *journal.Journal {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.j
}

// Append is [journal.Journal.Append].
func (h *history) Append(r journal.Record) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	h.j.Append(r)
}

// Healthy is [journal.Journal.Healthy].
func (h *history) Healthy() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.late != nil {
		return h.late
	}
	return h.j.Healthy()
}

// onDisk is an error while the history is in memory only, since the disk did not take
// it when the daemon started: the end of the program would lose it.
func (h *history) onDisk() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.late == nil {
		return nil
	}
	return exitcode.With(exitcode.Sick, fmt.Errorf("the journal is in memory only, since its disk does not take it, and another program would lose it: %w", h.late))
}

func (h *history) Pace(much bool)             { h.now().Pace(much) }
func (h *history) Recovery() journal.Recovery { return h.now().Recovery() }

// Sync is [journal.Journal.Sync]. It waits until the disk was tried: what is there
// is shown to nobody before.
func (h *history) Sync(ctx context.Context) error {
	select {
	case <-h.tried:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return h.now().Sync(ctx)
}

// Query is [journal.Journal.Query]. It waits for the disk as Sync does, but not for
// ever.
func (h *history) Query(ctx context.Context, f journal.Filter, then func(journal.Record) error) error {
	select {
	case <-h.tried:
	case <-ctx.Done():
	case <-time.After(shownTime):
	}
	return h.now().Query(ctx, f, then)
}

// Close is [journal.Journal.Close].
func (h *history) Close() error {
	h.settle()
	h.stop()
	<-h.done
	if h.late != nil {
		h.log.Error("the history of this run is lost: the disk of the journal did not take it", "err", h.late)
	}
	return h.j.Close()
}
