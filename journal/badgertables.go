package journal

import (
	"errors"
	"fmt"
	"os"
)

// tend looks after the files: the log that Badger may have begun, and the
// tables of full ones.
func (s *badgerStore) tend() error {
	for {
		next := s.memPath(s.mem + 1)
		if _, err := os.Stat(next); err != nil {
			break
		}
		s.mem++
		s.newDir = true
		if err := preallocate(next); err != nil {
			// What was written is. The next write would meet the full disk,
			// see room.
			s.log.Debug("no room for the log", "file", next, "error", err)
			s.sparse = true
		}
	}
	if s.written < memTable/2 {
		return nil
	}
	s.written = 0
	return s.merge(tablesBeforeMerge)
}

// merge moves the tables of the first level to the last one, if there are at
// least as many as that.
func (s *badgerStore) merge(atLeast int) error {
	if s.db.Levels()[0].NumTables < atLeast {
		return nil
	}
	// When a table can't be created, a compaction of Badger ends as if it had
	// been, and what was in it is gone.
	if err := s.roomToMerge(); err != nil {
		s.log.Debug("tables are not merged now", "error", err)
		return nil
	}
	if err := guard(func() error { return s.db.Flatten(1) }); err != nil {
		return s.failed(fmt.Errorf("merging tables: %w", err))
	}
	return nil
}

func (s *badgerStore) drop(seq uint64) error {
	if err := s.reopen(); err != nil {
		return err
	}
	if err := s.roomToMerge(); err != nil {
		return err
	}
	if err := guard(func() error { return s.db.DropPrefix(prefixes(0, seq)...) }); err != nil {
		return s.failed(fmt.Errorf("removing old records: %w", err))
	}
	if err := s.tend(); err != nil {
		return err
	}
	// DropPrefix only logs that it could not.
	left := false
	_, err := s.read(blockKey{}, before(seq).bytes(), func(blockKey, []byte) bool { left = true; return false })
	if err == nil && left {
		err = errors.New("removing old records: some are left")
	}
	if err == nil {
		err = s.whole()
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
