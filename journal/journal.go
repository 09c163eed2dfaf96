package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"dmxfs/locks"
)

// Options are what a journal is opened with.
type Options struct {
	// Cluster and Mount say whose journal it is: another one is not opened.
	// Cluster must not be empty for [Open]. An empty Mount is not compared.
	Cluster string
	Mount   string
	// Node is filled in where a record names no node.
	Node locks.NodeID
	// MaxAge is how long records are kept at least, if there is space; 0 is
	// [DefaultMaxAge]. They are deleted in pieces, at most a fourteenth of it
	// later. It is measured in time that the journal saw pass, see clock.go.
	MaxAge time.Duration
	// MaxBytes is how much space blocks of records may take; 0 is
	// [DefaultMaxBytes], the least is [MinMaxBytes]. When it is reached, the
	// oldest eighth goes. The directory takes up to [Overhead] more, and as
	// much again after damage, see [Recovery.Rebuilt]. A record takes about 25
	// bytes when there are many, and 150 when they come singly.
	MaxBytes int64
	// Delay is how long a record waits for others to be written with; 0 is
	// [DefaultDelay]. It is what a killed daemon loses.
	Delay time.Duration
	// SyncEvery is how long a record may be in danger of a power cut; 0 is
	// [DefaultSyncEvery]. Rare events are synced at once.
	SyncEvery time.Duration
	// Logger is told of damage, and of failures and their end; nil: nobody is.
	Logger *slog.Logger

	// For tests; bootTime and bufferLimit if not set.
	up    func() time.Duration
	limit int
	retry time.Duration
}

const (
	DefaultMaxAge    = 14 * 24 * time.Hour
	DefaultMaxBytes  = 64 << 20
	MinMaxBytes      = 4 << 20
	DefaultDelay     = 10 * time.Millisecond
	DefaultSyncEvery = time.Second
	// Overhead is what a journal's directory takes at most beside the blocks,
	// in bytes: logs, tables not yet merged, and those being merged.
	Overhead = roomNeeded
)

func (o *Options) fill() error {
	switch {
	case o.MaxAge < 0 || o.Delay < 0 || o.SyncEvery < 0:
		return errors.New("journal: a duration is negative")
	case o.MaxBytes != 0 && o.MaxBytes < MinMaxBytes:
		return fmt.Errorf("journal: at most %d bytes are too few, the least is %d", o.MaxBytes, int64(MinMaxBytes))
	}
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&o.MaxAge, DefaultMaxAge)
	or(&o.Delay, DefaultDelay)
	or(&o.SyncEvery, DefaultSyncEvery)
	or(&o.retry, retryEvery)
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.up == nil {
		o.up = bootTime
	}
	if o.limit == 0 {
		o.limit = bufferLimit
	}
	return nil
}

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
	prs  []pair

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

// Open opens the journal in a directory, which is made if there is none, and
// starts to write. It first closes what the last run left open: see [Recovery].
//
// Errors wrap [ErrInUse], [ErrOther], [ErrNewer], [ErrDamaged], [ErrNoSpace]
// or what the system says, and tell what to do.
func Open(dir string, o Options) (*Journal, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if o.Cluster == "" {
		return nil, errors.New("journal: no cluster is named")
	}
	d, err := openDirectory(dir, identity{formatVersion, o.Cluster, o.Mount}, true)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	st, damaged, err := openDatabase(d, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", errors.Join(err, d.release()))
	}
	j := newJournal(st, o)
	j.dir = d
	j.recovery.Rebuilt = damaged
	if err := j.begin(); err != nil {
		return nil, fmt.Errorf("journal: %w", errors.Join(err, st.close(), d.release()))
	}
	return j, nil
}

// openDatabase opens the database of a journal for writing. When it is damaged
// so much that Badger can't, it is made anew of what is left, and damaged is
// where the old one is kept.
func openDatabase(d *directory, log *slog.Logger) (st *badgerStore, damaged string, err error) {
	if err := finishRebuild(d); err != nil {
		return nil, "", err
	}
	if err := os.MkdirAll(d.db(), 0o700); err != nil {
		return nil, "", err
	}
	if err := space(d.db(), roomNeeded); err != nil {
		return nil, "", err
	}
	if err = checkDatabase(d.db()); err == nil {
		st, err = openBadgerStore(d.db(), log)
	}
	if err = d.cantOpen(err); !errors.Is(err, ErrDamaged) {
		return st, "", err
	}
	log.Warn("the journal's database is damaged; a new one is made of what is left", "directory", d.path, "error", err)
	damaged, rerr := d.rebuild(log)
	if rerr == nil {
		st, rerr = openBadgerStore(d.db(), log)
	}
	if rerr != nil {
		return nil, "", fmt.Errorf("%w; to make a new one of what is left failed, too: %w", err, rerr)
	}
	return st, damaged, nil
}

// cantOpen is the error of a database that Badger can't open. Most of Badger's
// errors can't be told apart, so what is left is called damage.
func (d *directory) cantOpen(err error) error {
	if err == nil {
		return nil
	}
	for _, e := range []error{fs.ErrPermission, unix.EROFS, unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.ENOMEM} {
		if errors.Is(err, e) {
			return fmt.Errorf("its database can't be opened: %w", err)
		}
	}
	return fmt.Errorf("%w: its database can't be opened: %w; %s", ErrDamaged, err, moveAside(d.path))
}

// OpenMemory is a journal that is lost when it is closed, for tests.
func OpenMemory(o Options) (*Journal, error) { return openStore(&memStore{}, o) }

func openStore(st store, o Options) (*Journal, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	j := newJournal(st, o)
	if err := j.begin(); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return j, nil
}

func newJournal(st store, o Options) *Journal {
	j := &Journal{
		opt:      o,
		log:      o.Logger,
		st:       st,
		open:     newOpenSet(),
		barriers: make(chan barrier),
		stop:     make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	j.buf.limit = o.limit
	j.buf.wake = make(chan struct{}, 1)
	j.buf.due, j.buf.delay = stopped(), o.Delay
	j.idx.grain = max(o.MaxBytes/256, 64<<10)
	j.idx.span = uint64(o.MaxAge / time.Second / 56)
	return j
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
// to a limit (64 Ki). Beyond it Append drops the record if the disk refuses
// writes; else it waits, as long as the disk goes on: for a quarter of a second
// without progress, and a second in all, before it drops the record, too. What
// was dropped is counted, in [Stats] and in a record of its own. After Close
// all records are dropped.
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
