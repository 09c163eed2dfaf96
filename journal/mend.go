package journal

import (
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/dmxfs/dmxfs/internal/sigbus"
)

const (
	// mendEvery is how often a store is mended at most: all of it is read then.
	mendEvery = 5 * time.Second
	// mendAfter is for how long there must have been no page fault: Badger makes
	// tables in a goroutine of its own.
	mendAfter = 100 * time.Millisecond
	// mendBytes is more than the tables have that Badger makes at a time: of two full
	// memory tables, and of those that it merges, see roomTables.
	mendBytes = (2 + tablesBeforeMerge + 1) * memTable
)

// mend opens a database anew in which there was a page fault, as if the process had
// ended: Badger, which believes that it has written what it has not, is closed; what
// is left is checked, and made anew of its blocks where it is damaged. What was written
// last is read before that, and written again if it is missing: so nothing is lost if
// the disk was only full.
func (s *badgerStore) mend() error {
	if s.whole() == nil && !s.unsound {
		return nil
	}
	if err := space(s.opt.Dir, roomAgain); err != nil {
		return fmt.Errorf("%w: %w", errFault, err)
	}
	if n := sigbus.Faults(); n != s.last {
		s.last, s.lastAt = n, time.Now()
	}
	if time.Since(s.lastAt) < mendAfter || !s.tried.IsZero() && time.Since(s.tried) < mendEvery {
		return errFault
	}
	s.tried = time.Now()
	s.unsound = true
	s.mu.Lock()
	db := s.db
	s.db = nil
	s.mu.Unlock()
	if db != nil {
		if s.rescued == nil {
			s.rescued = newestPairs(db, mendBytes)
		}
		if err := guard(db.Close); err != nil {
			s.log.Debug("closing the journal's database after a page fault", "error", err)
		}
	}
	s.faults = sigbus.Faults()
	remade := ""
	if err := checkDatabase(s.opt.Dir); err != nil {
		s.log.Warn("the journal's database is damaged; a new one is made of what is left", "error", err)
		if remade, err = s.remake(); err != nil {
			return fmt.Errorf("%w; to make a new one of what is left failed: %w", errFault, err)
		}
	}
	if err := s.open(); err != nil {
		return fmt.Errorf("%w; to open it anew failed: %w", errFault, err)
	}
	s.unsound, s.full = false, false
	if err := s.writeMissing(s.rescued); err != nil {
		s.unsound = true // all of this again
		return err
	}
	s.rescued = nil
	if s.mended != nil {
		s.mended(remade)
	}
	return s.whole()
}

// newestPairs is what was written last, in order: size bytes, or a little more.
func newestPairs(db *badger.DB, size int) (pairs []pair) {
	_ = guard(func() error { // what cannot be read is lost
		txn := db.NewTransaction(false)
		defer txn.Discard()
		it := txn.NewIterator(badger.IteratorOptions{Reverse: true})
		defer it.Close()
		for it.Rewind(); it.Valid() && size > 0; it.Next() {
			p := pair{key: it.Item().KeyCopy(nil)}
			if err := it.Item().Value(func(v []byte) error {
				p.value = slices.Clone(v)
				return nil
			}); err != nil {
				return err
			}
			if isWhole(p.key, p.value) {
				pairs = append(pairs, p)
				size -= len(p.value)
			}
		}
		return nil
	})
	slices.Reverse(pairs)
	return pairs
}

// isWhole reports whether what is stored under a key is the block that belongs there.
func isWhole(key, value []byte) bool {
	k, err := parseKey(key)
	if err == nil {
		_, err = checkBlock(k, value)
	}
	return err == nil
}

// writeMissing writes those of the pairs that are not stored.
func (s *badgerStore) writeMissing(pairs []pair) error {
	if len(pairs) == 0 {
		return nil
	}
	from, err := parseKey(pairs[0].key)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	if err := s.scan(from, endKey, func(k blockKey, v []byte) bool {
		if _, err := checkBlock(k, v); err == nil {
			there[string(k.bytes())] = true
		}
		return true
	}); err != nil {
		return err
	}
	pairs = slices.DeleteFunc(slices.Clone(pairs), func(p pair) bool { return there[string(p.key)] })
	for len(pairs) > 0 {
		n, size := 0, 0
		for n < len(pairs) && (n == 0 || size+len(pairs[n].value) <= batchBytes) {
			size += len(pairs[n].value)
			n++
		}
		if err := s.write(pairs[:n]); err != nil {
			return err
		}
		pairs = pairs[n:]
	}
	return nil
}

// mended is called when the database was opened anew after a page fault; remade is
// where the old one is, if it was damaged. What is missing now is told, and how things
// are is written down soon, since that may be missing, too.
func (w *writer) mended(remade string) {
	var seq sequence
	var ds []Damage
	note := func(d Damage, ok bool) {
		if ok && w.damage.add(d) {
			ds = append(ds, d)
		}
	}
	err := w.st.scan(before(w.idx.floor), endKey, func(k blockKey, v []byte) bool {
		b, err := checkBlock(k, v)
		switch {
		case err != nil:
			note(seq.damaged(k, err))
		case !b.state():
			note(seq.block(&b))
		}
		return true
	})
	if err != nil {
		w.log.Warn("the journal could not be searched for damage: what of it is missing, if anything, is not known", "error", err)
	} else {
		note(seq.end(w.idx.end - 1))
	}
	w.sinceState = w.opt.MaxBytes
	reason := "the disk could not take, or give, a page of the journal's database, which was opened anew"
	if remade != "" {
		reason += " and made of what is left; the old one is " + remade
	}
	w.log.Info(reason)
	w.Append(Record{Event: Note, Reason: reason})
	w.noteDamage(ds)
}
