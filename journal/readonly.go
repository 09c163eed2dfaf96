package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// OpenReadOnly opens the journal in a directory in which no daemon runs, to
// query it. Requests that the last run left open stay so. It can be open in
// several processes at once. Cluster and Mount are compared if they are set.
//
// A journal that was not closed is put in order first: what Badger holds in its
// log is written to a table, as the next daemon would do. Nothing is lost by
// it, but it needs to write.
func OpenReadOnly(dir string, o Options) (*Journal, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	d, err := openDirectory(dir, identity{formatVersion, o.Cluster, o.Mount}, false)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	st, damaged, err := openToRead(d, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", errors.Join(err, d.release()))
	}
	j := newJournal(st, o)
	j.recovery.Rebuilt = damaged
	j.dir = d
	j.readOnly = true
	close(j.stopped) // there is no writer
	if _, err := j.load(); err != nil {
		return nil, fmt.Errorf("journal: %w", errors.Join(err, st.close(), d.release()))
	}
	j.buf.next = j.idx.end
	j.buf.stored = j.idx.end - 1
	j.recovery.Damaged = j.damage.from(j.idx.floor)
	return j, nil
}

// openToRead opens the database read-only, and lets other readers in.
func openToRead(d *directory, log *slog.Logger) (st *badgerStore, damaged string, err error) {
	closed, err := d.closed()
	if err != nil {
		return nil, "", err
	}
	if !closed {
		if damaged, err = d.mend(log); err != nil {
			return nil, "", fmt.Errorf("the last daemon did not close the journal, and it can't be put in order: %w", err)
		}
	}
	s := &badgerStore{opt: badgerOptions(d.db(), log).WithReadOnly(true), log: log}
	if err := s.open(); err != nil {
		return nil, "", d.cantOpen(err)
	}
	if d.alone {
		if err := d.share(); err != nil {
			return nil, "", errors.Join(err, s.close())
		}
	}
	return s, damaged, nil
}

// closed reports whether Badger can open the database without a write. It can't
// when there is the log of a memory table, which it has to cut behind the last
// whole entry, or a file that is empty since its maker died; nor when there is
// damage.
func (d *directory) closed() (bool, error) {
	files, err := os.ReadDir(d.db())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // see finishRebuild
	}
	if err != nil {
		return false, err
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return false, err
		}
		if strings.HasSuffix(f.Name(), ".mem") || info.Size() == 0 {
			return false, nil
		}
	}
	return checkDatabase(d.db()) == nil, nil
}

// mend opens the database for writing, and closes it.
func (d *directory) mend(log *slog.Logger) (damaged string, err error) {
	if !d.alone {
		return "", fmt.Errorf("%w: another process reads it", ErrInUse)
	}
	st, damaged, err := openDatabase(d, log)
	if err != nil {
		return "", err
	}
	return damaged, st.close()
}
