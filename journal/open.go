package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
	st.remake = func() (string, error) { return d.rebuild(o.Logger) }
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

// cantOpen is the error of a database that can't be opened. What is not known
// to be another fault is called damage.
func (d *directory) cantOpen(err error) error {
	if err == nil {
		return nil
	}
	for _, e := range []unix.Errno{
		unix.EACCES, unix.EPERM, unix.EROFS, unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.EDQUOT, unix.ENOMEM, unix.EIO,
	} {
		// Badger keeps only the text.
		if errors.Is(err, e) || strings.Contains(err.Error(), e.Error()) {
			return fmt.Errorf("its database can't be opened: %w", err)
		}
	}
	return fmt.Errorf("%w: its database can't be opened: %w; %s", ErrDamaged, err, moveAside(d.path))
}

// OpenMemory is a journal that is lost when it is closed. It takes as much memory
// as [Options.MaxBytes] says, and what its index takes.
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
