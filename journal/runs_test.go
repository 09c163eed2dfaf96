package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

func init() { children["runs"] = childRuns }

// childRuns has many short runs, for ever, and tells after each which records are safe.
func childRuns(args []string) error {
	for {
		j, err := Open(args[0], testOptions())
		if err != nil {
			return err
		}
		j.Append(Record{Event: Note})
		n := j.Stats().Next - 1
		if err := j.Close(); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// tables are the files of tables of the journal in dir.
func tables(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, dbDir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// mostTables are there after any number of short runs: those that are few enough to be
// left as they are, those of the first level, and those of the runs since the first of
// them that merges.
const mostTables = smallTables + 3*tablesBeforeMerge

// checkRecords wants the records with the numbers 1 to n, each once, and no others.
func checkRecords(t *testing.T, j *Journal, n int) {
	t.Helper()
	var seqs, want []uint64
	for _, r := range find(t, j, Filter{}) {
		seqs = append(seqs, r.Seq)
	}
	for i := range n {
		want = append(want, uint64(i+1))
	}
	if !slices.Equal(seqs, want) {
		t.Errorf("records %v, want 1 to %d", seqs, n)
	}
}

// awaitTables waits until what the last run has left in logs is in tables: Badger changes
// nothing more then, and a copy of the files is what a kill leaves.
func awaitTables(t *testing.T, s *badgerStore) {
	t.Helper()
	for {
		logs, err := s.logs()
		if err != nil {
			t.Fatal(err)
		}
		if len(logs) <= 1 {
			return
		}
		runtime.Gosched()
	}
}

// openStoreIn opens the store in dir.
func openStoreIn(t *testing.T, dir string) *badgerStore {
	t.Helper()
	db := filepath.Join(dir, dbDir)
	if err := os.MkdirAll(db, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := openBadgerStore(db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// After many short runs there are few tables, and all records. Each second run is killed: the
// next one opens what was there then.
func TestManyShortRunsLeaveFewTables(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "0")
	most := 0
	for i := range 60 {
		j := openDir(t, dir, testOptions())
		j.Append(Record{Event: Note})
		syncNow(t, j)
		if i%2 == 0 {
			awaitTables(t, j.st.(*badgerStore))
			next := filepath.Join(t.TempDir(), strconv.Itoa(i+1))
			if err := os.CopyFS(next, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			dir = next
		}
		closeNow(t, j)
		most = max(most, len(tables(t, dir)))
	}
	t.Logf("%d tables at most", most)
	if most > mostTables {
		t.Errorf("%d tables after short runs, want %d at most", most, mostTables)
	}
	checkRecords(t, openDir(t, dir, testOptions()), 60+30) // and one that says that the last run was killed
}

// A journal that has many small tables by now, of a version that has left them, has few soon.
// They stand behind larger ones, which are not copied.
func TestManyTablesBecomeFew(t *testing.T) {
	dir := t.TempDir()
	write := func(s *badgerStore, seq uint64, size int) {
		t.Helper()
		if err := s.write([]pair{{blockKey{seq: seq, kind: kindRecords}.bytes(), slices.Repeat([]byte{byte(seq)}, size)}}); err != nil {
			t.Fatal(err)
		}
	}
	seq := uint64(1)
	run := func(small bool, f func(s *badgerStore)) {
		t.Helper()
		s := openStoreIn(t, dir)
		if small {
			s.delete = nil // as it was
		}
		f(s)
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
	run(true, func(s *badgerStore) {
		for ; seq <= 60; seq++ {
			write(s, seq, 100<<10)
		}
	})
	for range 4 * smallTables {
		run(true, func(s *badgerStore) { write(s, seq, 10); seq++ })
	}
	count := func() (n int, large []uint64) {
		t.Helper()
		run(true, func(s *badgerStore) {
			for _, x := range s.db.Tables() {
				if x.Level > 0 && x.OnDiskSize > 1<<20 {
					large = append(large, x.ID)
				}
				n++
			}
		})
		return n, large
	}
	before, large := count()
	if before < 4*smallTables || len(large) < 2 {
		t.Fatalf("%d tables, of which %d are large: this is no test", before, len(large))
	}
	for range tablesBeforeMerge {
		run(false, func(s *badgerStore) { write(s, seq, 10); seq++ })
	}
	after, still := count()
	if after > mostTables+len(large) {
		t.Errorf("%d tables, and %d before", after, before)
	}
	// One at the border may be of those that are merged.
	if n := len(large) - 2; !slices.Equal(still[:n], large[:n]) {
		t.Errorf("of the large tables %v there are %v", large, still)
	}
	run(true, func(s *badgerStore) {
		next := uint64(1)
		if err := s.scan(blockKey{}, endKey, func(k blockKey, v []byte) bool {
			if k != (blockKey{seq: next, kind: kindRecords}) || v[0] != byte(next) {
				t.Errorf("%v at the place of %d", k, next)
			}
			next++
			return true
		}); err != nil || next != seq {
			t.Errorf("%d blocks, want %d; %v", next-1, seq-1, err)
		}
	})
}

// The key by which a run has had tables merged may be left in one of them, if that was merged
// while somebody could still read it: the oldest table begins with it then.
func TestTablesBehindADeletedKey(t *testing.T) {
	dir := t.TempDir()
	run := func(k blockKey) {
		t.Helper()
		s := openStoreIn(t, dir)
		if err := errors.Join(s.write([]pair{{k.bytes(), []byte("a record")}}), s.close()); err != nil {
			t.Fatal(err)
		}
	}
	run(blockKey{kind: kindNone, part: 1<<16 - 1})
	for seq := range uint64(4 * smallTables) {
		run(blockKey{seq: seq + 1, kind: kindRecords})
	}
	if n := len(tables(t, dir)); n > mostTables {
		t.Errorf("%d tables, want %d at most", n, mostTables)
	}
}

// kill -9 at any moment of many short runs, while their tables are merged as well: what Close
// returned from is there, and all before it.
func TestKillInShortRuns(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	for cycle := range long.Or(3, 20) * *more {
		c := startChild(t, nil, "runs", dir)
		safe := ""
		for range 1 + rnd.IntN(3*smallTables) {
			safe = c.line(t)
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		for c.out.Scan() {
			safe = c.out.Text()
		}
		n, err := strconv.Atoi(safe)
		if err != nil {
			t.Fatal(err)
		}
		j, err := Open(dir, testOptions())
		if err != nil {
			t.Fatalf("cycle %d: %v", cycle, err)
		}
		if r := j.Recovery(); len(r.Damaged) > 0 || r.Rebuilt != "" {
			t.Errorf("cycle %d: damaged %v, rebuilt %q", cycle, r.Damaged, r.Rebuilt)
		}
		last := int(j.Stats().Next - 1)
		if last < n {
			t.Errorf("cycle %d: record %d was safe, the last one is %d", cycle, n, last)
		}
		checkRecords(t, j, last)
		closeNow(t, j)
		if n := len(tables(t, dir)); n > mostTables {
			t.Errorf("cycle %d: %d tables", cycle, n)
		}
	}
}
