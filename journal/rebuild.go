package journal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
)

const (
	// damagedDir is where the database goes that a new one was made of.
	damagedDir = "db.damaged"
	// rebuildDir is where the new one is made.
	rebuildDir = "db.new"
)

// A database that Badger can't read is made anew of the blocks that are found
// in its files, whatever is around them: a block tells its length and place,
// and has a checksum. The steps, and what is there if we stop after each:
//
//	the new database is written to db.new   db, and part of db.new: begin again
//	db becomes db.damaged                   no db, and db.new: see finishRebuild
//	db.new becomes db                       done
//
// The damaged one is kept, until the next time, for those who want to know.

// finishRebuild goes on with what a rebuild may have left.
func finishRebuild(d *directory) error {
	exists := func(name string) bool {
		_, err := os.Lstat(filepath.Join(d.path, name))
		return err == nil
	}
	if !exists(dbDir) && exists(rebuildDir) && exists(damagedDir) {
		return d.rename(rebuildDir, dbDir)
	}
	return os.RemoveAll(filepath.Join(d.path, rebuildDir))
}

func (d *directory) rename(from, to string) error {
	if err := os.Rename(filepath.Join(d.path, from), filepath.Join(d.path, to)); err != nil {
		return err
	}
	return syncDir(d.path)
}

// rebuild replaces the database, and returns where the damaged one is.
func (d *directory) rebuild(log *slog.Logger) (damaged string, err error) {
	size, err := diskUsed(d.db())
	if err != nil {
		return "", err
	}
	if err := space(d.path, uint64(size)+roomNeeded); err != nil {
		return "", err
	}
	tmp := filepath.Join(d.path, rebuildDir)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return "", err
	}
	st, err := openBadgerStore(tmp, log)
	if err != nil {
		return "", err
	}
	if err := errors.Join(salvage(d.db(), st), st.sync(), st.close()); err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	damaged = filepath.Join(d.path, damagedDir)
	if err := os.RemoveAll(damaged); err != nil {
		return "", err
	}
	if err := d.rename(dbDir, damagedDir); err != nil {
		return "", err
	}
	return damaged, d.rename(rebuildDir, dbDir)
}

// salvage writes to st all blocks that are found in the files below dir.
func salvage(dir string, st store) error {
	// Tables and logs are numbered in the order in which they were made, and
	// what is in a log is newer than any table. The same block can be in
	// several. Only a state can be written twice; then the last one counts.
	var names []string
	for _, pattern := range []string{"*.sst", "*.mem"} {
		some, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		slices.Sort(some)
		names = append(names, some...)
	}
	for _, name := range names {
		if err := salvageFile(name, st); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func salvageFile(name string, st store) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var pairs []pair
	n := 0
	flush := func() error {
		if len(pairs) == 0 {
			return nil
		}
		err := st.write(pairs)
		pairs, n = pairs[:0], 0
		return err
	}
	for v := range blocksIn(data) {
		b, err := parseBlock(v)
		if err != nil {
			continue // not a block after all
		}
		if n+len(v) > batchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		pairs = append(pairs, pair{b.key().bytes(), v})
		n += len(v)
	}
	return flush()
}

// blocksIn finds what may be blocks anywhere in data.
func blocksIn(data []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for {
			i := bytes.Index(data, []byte(blockMagic))
			if i < 0 {
				return
			}
			data = data[i:]
			n := blockLen(data)
			if n == 0 || n > 2*maxBody {
				data = data[1:]
				continue
			}
			if !yield(data[:n]) {
				return
			}
			// A block within a block is impossible only if this was one.
			data = data[1:]
		}
	}
}
