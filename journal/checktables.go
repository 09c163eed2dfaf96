package journal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
)

// checkDatabase looks for damage to the files below dir that Badger does not
// bear: to its list of tables, or to the structure of a table. Badger would
// refuse to open the database; or panic, then or later, in a goroutine of its
// own, which ends the process; or take a table that it can't read to its end
// for a shorter one, and copy no more of it. Damage to a value is none of
// these; the value's reader finds it.
func checkDatabase(dir string) error {
	opt := badgerOptions(dir, slog.New(slog.DiscardHandler))
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, os.ErrNotExist) {
		// Badger would begin a new list, and delete what is not on it.
		if tables, err := filepath.Glob(filepath.Join(dir, "*.sst")); err != nil || len(tables) > 0 {
			return errors.Join(errors.New("the list of its tables is missing"), err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	m, _, err := badger.ReplayManifestFile(f, opt.ExternalMagicVersion, opt)
	if err != nil {
		return fmt.Errorf("the list of its tables: %w", err)
	}
	for id := range m.Tables {
		name := table.NewFilename(id, dir)
		if err := guard(func() error { return checkTable(name, id) }); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
	}
	return nil
}

var errStructure = errors.New("the structure of the table is damaged")

// checkTable walks over all keys of a table. It may panic.
func checkTable(name string, id uint64) error {
	// Not mapped: an error of the disk would be a SIGBUS.
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	t, err := table.OpenInMemoryTable(data, id, &table.Options{})
	if err != nil {
		return err
	}
	it := t.NewIterator(table.NOCACHE)
	defer it.Close()
	n := uint32(0)
	var last []byte
	for it.Rewind(); it.Valid(); it.Next() {
		k := it.Key()
		// Badger's own entries begin with an exclamation mark. Ours are their
		// key and the version of Badger's that follows it.
		if !bytes.HasPrefix(k, []byte("!badger!")) && len(k) != keySize+8 || bytes.Compare(k, last) <= 0 {
			return errStructure
		}
		last = append(last[:0], k...)
		n++
	}
	if n != t.KeyCount() {
		return fmt.Errorf("%w: %d entries of %d", errStructure, n, t.KeyCount())
	}
	return nil
}
