package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/journal"
)

// LogRecovery logs what the last run left behind.
func LogRecovery(log *slog.Logger, r journal.Recovery) {
	for _, l := range r.Lost {
		log.Warn("a lock that the last run of the daemon held is lost", "path", l.Path, "class", l.Key.Class.String(),
			"mode", l.Mode.String(), "pid", l.PID, "command", l.Command)
	}
	for _, x := range r.Damaged {
		log.Error("a part of the journal cannot be read", "part", x.String())
	}
}

// History is the journal of a daemon. Where its disk is full or fails when the
// daemon starts it is kept in memory at first, and gets to the disk as soon as
// that takes it: who loses a local disk loses no locks.
type History struct {
	log  *slog.Logger
	dir  string
	opts journal.Options

	mu     sync.RWMutex // held for writing while j changes
	j      *journal.Journal
	late   error         // why j is in memory; nil: it is on the disk, or about to be
	tried  chan struct{} // closed when the disk was tried
	done   chan struct{}
	stop   context.CancelFunc
	toDisk func() // see Settle
}

// ShownTime is how long the answer to a query may wait for the disk.
const ShownTime = time.Second

const (
	// maxMemory is how much of the history is kept in memory.
	maxMemory = 16 << 20
	// retryEvery is how often a disk is tried that the journal could not be
	// opened on.
	retryEvery = 2 * time.Second
	// endsIn is how long a process that was killed may have the journal open still: one that
	// waits for the mount ends when the next one serves it. It is looked at every endsEvery.
	endsIn    = 10 * time.Second
	endsEvery = 50 * time.Millisecond
	// lastRecords is how many records are moved while others wait.
	lastRecords = 64
)

// diskTroubles are those of a journal that its daemon can do without for a while.
var diskTroubles = []error{
	journal.ErrNoSpace, unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ENXIO, unix.ENODEV, unix.ESTALE, unix.EUCLEAN,
}

func isDiskTrouble(err error) bool {
	return slices.ContainsFunc(diskTroubles, func(e error) bool { return errors.Is(err, e) })
}

// Open opens the journal in dir. required: without its disk there is none, and the error
// says why. Else only an error that will not pass is one.
func Open(dir string, o journal.Options, required bool) (*History, error) {
	h, err := openOnDisk(dir, o)
	if err == nil {
		return h, nil
	}
	if required || !isDiskTrouble(err) {
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

// Resume opens the journal that the program before this one has written in
// the same process, and in which what is open goes on. It waits for the disk only
// where there is no lock without it; else it goes there when [History.Settle] is
// called. Where the disk fails locks are as they are whenever it does.
func Resume(dir string, o journal.Options, required bool) (*History, error) {
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
	h.toDisk = sync.OnceFunc(func() { go h.begin(ctx) })
	return h, nil
}

// begin has what is in memory go to the disk.
func (h *History) begin(ctx context.Context) {
	err := h.tryDisk(ctx)
	for began := time.Now(); errors.Is(err, journal.ErrInUse) && time.Since(began) < endsIn && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-time.After(endsEvery):
			err = h.tryDisk(ctx)
		}
	}
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

func newHistory(dir string, o journal.Options) *History {
	return &History{log: o.Logger, dir: dir, opts: o, tried: make(chan struct{}), done: make(chan struct{}), stop: func() {}, toDisk: func() {}}
}

// openOnDisk opens the journal; with an error it is not open at all yet.
func openOnDisk(dir string, o journal.Options) (*History, error) {
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
func (h *History) openInMemory() (ctx context.Context, err error) {
	small := h.opts
	small.MaxBytes = maxMemory
	if h.j, err = journal.OpenMemory(small); err != nil {
		return nil, err
	}
	ctx, h.stop = context.WithCancel(context.Background())
	return ctx, nil
}

func (h *History) setLate(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late = err
}

// follow tries until the journal is on the disk, or ctx ends.
func (h *History) follow(ctx context.Context) {
	defer close(h.done)
	tick := time.NewTicker(retryEvery)
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
func (h *History) tryDisk(ctx context.Context) error {
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
	LogRecovery(h.log, disk.Recovery())
	return memory.Close()
}

// Settle has what a resumed history has in memory go to the disk. It does not wait for
// that, and does it once.
func (h *History) Settle() { h.toDisk() }

// Now is the journal that is written.
func (h *History) Now() *journal.Journal {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.j
}

// Append is [journal.Journal.Append].
func (h *History) Append(r journal.Record) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	h.j.Append(r)
}

// Healthy is [journal.Journal.Healthy].
func (h *History) Healthy() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.late != nil {
		return h.late
	}
	return h.j.Healthy()
}

// OnDisk is an error while the history is in memory only, since the disk did not take
// it when the daemon started: the end of the program would lose it.
func (h *History) OnDisk() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.late == nil {
		return nil
	}
	return exitcode.With(exitcode.Sick, fmt.Errorf("the journal is in memory only, since its disk does not take it, and another program would lose it: %w", h.late))
}

// Pace is [journal.Journal.Pace].
func (h *History) Pace(much bool) { h.Now().Pace(much) }

// Crowded is [journal.Journal.Crowded].
func (h *History) Crowded() bool { return h.Now().Crowded() }

// Recovery is [journal.Journal.Recovery], of the journal that is written now.
func (h *History) Recovery() journal.Recovery { return h.Now().Recovery() }

// Sync is [journal.Journal.Sync]. It waits until the disk was tried: what is there
// is shown to nobody before.
func (h *History) Sync(ctx context.Context) error {
	select {
	case <-h.tried:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return h.Now().Sync(ctx)
}

// Query is [journal.Journal.Query]. It waits for the disk as Sync does, but not for
// ever.
func (h *History) Query(ctx context.Context, f journal.Filter, then func(journal.Record) error) error {
	select {
	case <-h.tried:
	case <-ctx.Done():
	case <-time.After(ShownTime):
	}
	return h.Now().Query(ctx, f, then)
}

// Close is [journal.Journal.Close].
func (h *History) Close() error {
	h.Settle()
	h.stop()
	<-h.done
	if h.late != nil {
		h.log.Error("the history of this run is lost: the disk of the journal did not take it", "err", h.late)
	}
	return h.j.Close()
}
