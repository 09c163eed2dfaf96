package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/dgraph-io/badger/v4"
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

// tail is a key that stands before the newest tables of the last level, if they
// are many and small; else nil.
//
// Each run of a daemon leaves a table, however small, with keys of its own. Badger
// moves it to the last level by itself, as it overlaps with no other there, and it
// is a file, and a descriptor, until its records are deleted. So a run that finds
// many of them deletes that key with its first write. There is none like it: nothing
// changes by that. But the table of the run then reaches from there to its own
// records, which are the newest, and Badger merges all that is between.
func (s *badgerStore) tail() []byte {
	tables := slices.DeleteFunc(s.db.Tables(), func(t badger.TableInfo) bool { return t.Level == 0 })
	slices.SortFunc(tables, func(a, b badger.TableInfo) int { return bytes.Compare(b.Left, a.Left) })
	n, size := 0, uint32(0)
	for ; n < len(tables) && size+tables[n].OnDiskSize <= tailBytes; n++ {
		size += tables[n].OnDiskSize
	}
	if n < smallTables {
		return nil
	}
	first := tables[n-1].Left // with Badger's version behind it
	if len(first) < keySize {
		return nil
	}
	k, err := parseKey(first[:keySize])
	if err != nil {
		return nil
	}
	if k.kind == kindNone { // one that was deleted before, which Badger has kept
		return k.bytes()
	}
	if k.seq == 0 {
		return nil
	}
	return blockKey{seq: k.seq - 1, kind: kindNone, part: 1<<16 - 1}.bytes()
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
