package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/dmxfs/dmxfs/internal/sigbus"
)

// badgerStore is a store in a Badger database of its own.
//
// Badger is built for databases that matter more than the process that they
// are in: it ends the process (log.Fatal, a nil memory table) after some
// errors, and a page fault of its mapped files on a full disk is a SIGBUS. A
// lock daemon can't have that. So before each write the store makes sure of
// space and file descriptors (room.go), it keeps the log of the current memory
// table allocated, merges tables itself, and after any error opens Badger anew.
// If there is such a page fault all the same, the process goes on (package sigbus),
// and the store takes nothing until it is opened anew: see mend.
type badgerStore struct {
	opt badger.Options
	log *slog.Logger

	// mu guards db: held for reading while it is in use, for writing while it
	// is replaced. db is nil after an error, until it is opened anew.
	mu sync.RWMutex
	db *badger.DB

	// The following are the writer's.
	mem     int    // number of the current memory table's log
	newDir  bool   // a log was created since the directory was synced
	written int    // bytes, since the tables were last looked at
	full    bool   // there was no room
	sparse  bool   // the current log could not be preallocated
	delete  []byte // with the next write, see tail

	faults  uint64    // of pages, when the store was opened
	last    uint64    // what they were when mend looked last
	lastAt  time.Time // when it saw more of them
	unsound bool      // there was one, and the store was not opened anew yet
	tried   time.Time // when that was tried last; zero: never
	rescued []pair    // what was written last then
	// remake makes the database anew of what is left, and returns where the old one is.
	remake func() (string, error)
	mended func(remade string) // or nil
}

func openBadgerStore(dir string, log *slog.Logger) (*badgerStore, error) {
	if err := sigbus.Guard(); err != nil {
		log.Warn("the daemon ends if the disk of its journal is full just when it is written to", "error", err)
	}
	s := &badgerStore{opt: badgerOptions(dir, log), log: log, faults: sigbus.Faults(),
		remake: func() (string, error) { return "", fmt.Errorf("%w: %s", ErrDamaged, dir) }}
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

// open opens Badger. It is called when s.db is nil.
func (s *badgerStore) open() error {
	if err := descriptors(openDescriptors); err != nil {
		return err
	}
	db, err := openBadger(s.opt)
	if err != nil {
		return err
	}
	if s.opt.ReadOnly {
		s.db = db
		return nil
	}
	mems, err := s.logs()
	if err == nil && len(mems) == 0 {
		err = errors.New("the database has no log")
	}
	if err == nil {
		s.mem = mems[len(mems)-1]
		s.newDir, s.sparse = true, false
		err = preallocate(s.memPath(s.mem))
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	s.mu.Lock()
	s.db = db
	s.mu.Unlock()
	// Each run leaves a table, however small. When there are very many, Badger
	// waits until they are merged.
	if err := s.merge(tablesBeforeMerge); err != nil {
		return err
	}
	s.delete = s.tail()
	return nil
}

// openBadger opens a database, also after a crash.
func openBadger(opt badger.Options) (*badger.DB, error) {
	for try := 0; ; try++ {
		db, err := badger.Open(opt)
		// A process that dies between the creation of a log and its first
		// write leaves an empty file. Badger fails on it with this text (the
		// error that it wraps is lost), but repairs it. There can be one for
		// each kind of log.
		if err != nil && try < 3 && strings.Contains(err.Error(), "Create a new file") {
			continue
		}
		return db, err
	}
}

func (s *badgerStore) memPath(n int) string {
	return filepath.Join(s.opt.Dir, fmt.Sprintf("%05d.mem", n))
}

// logs are the numbers of the logs of memory tables, in order.
func (s *badgerStore) logs() ([]int, error) {
	files, err := os.ReadDir(s.opt.Dir)
	if err != nil {
		return nil, err
	}
	var ns []int
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".mem"); ok {
			if n, err := strconv.Atoi(name); err == nil {
				ns = append(ns, n)
			}
		}
	}
	slices.Sort(ns)
	return ns, nil
}

// failed opens the database anew after an error: Badger may be in a state in
// which the next call ends the process. If that fails, too, the next call of
// the writer tries again.
func (s *badgerStore) failed(err error) error {
	s.mu.Lock()
	db := s.db
	s.db = nil
	s.mu.Unlock()
	if cerr := guard(db.Close); cerr != nil {
		s.log.Debug("closing the journal's database after an error", "error", cerr)
	}
	if oerr := s.reopen(); oerr != nil {
		s.log.Debug("opening the journal's database after an error", "error", oerr)
	}
	return err
}

// errFault is why nothing is written until the database is opened anew.
var errFault = errors.New("the disk could not take, or give, a page of the journal's database when it had to: it is full, or fails")

// whole is an error if there was a page fault. Badger goes on then with memory in
// the place of the page, and says that it has written what it has not. So it is not
// asked for more.
func (s *badgerStore) whole() error {
	if sigbus.Faults() == s.faults {
		return nil
	}
	if err := space(s.opt.Dir, roomAgain); err != nil {
		return fmt.Errorf("%w: %w", errFault, err)
	}
	return errFault
}

// reopen opens the database if it is not open, and may be used.
func (s *badgerStore) reopen() error {
	if err := s.mend(); err != nil {
		return err
	}
	if s.db != nil {
		return nil
	}
	if err := space(s.opt.Dir, roomNeeded); err != nil {
		return err
	}
	return s.open()
}

// errPanic is an error that was a panic of Badger, which panics on some damage.
var errPanic = errors.New("the database panicked")

// guard calls f, and returns a panic as an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	return f()
}

func (s *badgerStore) write(pairs []pair) error {
	if err := s.reopen(); err != nil {
		return err
	}
	err := guard(func() error {
		txn := s.db.NewTransaction(true)
		defer txn.Discard()
		for _, p := range pairs {
			if err := txn.Set(p.key, p.value); err != nil {
				return err
			}
			s.written += len(p.key) + len(p.value)
		}
		if s.delete != nil {
			if err := txn.Delete(s.delete); err != nil {
				return err
			}
		}
		return txn.Commit()
	})
	if err != nil {
		return s.failed(err)
	}
	s.delete = nil
	if err := s.tend(); err != nil {
		return err
	}
	return s.whole()
}

// scanBytes is how much a scan copies at a time. While it reads, it holds on
// to tables; while it calls out, it holds nothing.
const scanBytes = 256 << 10

func (s *badgerStore) scan(from, to blockKey, f func(blockKey, []byte) bool) error {
	var (
		buf   []byte
		keys  []blockKey
		sizes []int
		end   = to.bytes()
	)
	for at := from; ; {
		buf, keys, sizes = buf[:0], keys[:0], sizes[:0]
		more, err := s.read(at, end, func(k blockKey, v []byte) bool {
			buf = append(buf, v...)
			keys = append(keys, k)
			sizes = append(sizes, len(v))
			return len(buf) < scanBytes
		})
		v := buf
		for i, k := range keys {
			if !f(k, v[:sizes[i]:sizes[i]]) {
				return nil
			}
			v = v[sizes[i]:]
			at = k.next()
		}
		if err != nil || !more {
			return err
		}
	}
}

// read calls f for the entries from at to before end, until f returns false:
// then there may be more.
func (s *badgerStore) read(at blockKey, end []byte, f func(blockKey, []byte) bool) (more bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return false, errNotOpen
	}
	err = guard(func() error {
		txn := s.db.NewTransaction(false)
		defer txn.Discard()
		it := txn.NewIterator(badger.IteratorOptions{})
		defer it.Close()
		for it.Seek(at.bytes()); it.Valid(); it.Next() {
			item := it.Item()
			if string(item.Key()) >= string(end) {
				return nil
			}
			k, err := parseKey(item.Key())
			if err != nil {
				return err
			}
			if err := item.Value(func(v []byte) error {
				more = !f(k, v)
				return nil
			}); err != nil || more {
				return err
			}
		}
		return nil
	})
	return more, err
}

var errNotOpen = errors.New("the database is not open after an error")

// close closes the database, which writes the current memory table to a table.
// When the disk has no room for that, it is left as by a crash, in which
// nothing is lost.
func (s *badgerStore) close() error {
	if s.db == nil {
		return nil
	}
	if !s.opt.ReadOnly {
		if err := s.roomToMerge(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	db := s.db
	s.db = nil
	s.mu.Unlock()
	// Badger takes what it could not write for written.
	err := guard(db.Close)
	if s.unsound = s.whole() != nil; s.unsound {
		err = errors.Join(err, errFault)
	}
	return err
}

// sync makes all that was written durable. [badger.DB.Sync] would sync only
// the current log: not one that became full since, and not the directory that
// it was created in. A log that has gone was written to a table, and synced.
func (s *badgerStore) sync() error {
	if err := s.reopen(); err != nil {
		return err
	}
	logs, err := s.logs()
	if err != nil {
		return err
	}
	for _, n := range logs {
		f, err := os.OpenFile(s.memPath(n), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	if s.newDir {
		if err := syncDir(s.opt.Dir); err != nil {
			return err
		}
		s.newDir = false
	}
	return s.whole()
}
