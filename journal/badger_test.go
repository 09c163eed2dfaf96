package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/dgraph-io/badger/v4/options"

	"github.com/dmxfs/dmxfs/internal/long"
)

func testOptions() Options { return Options{Cluster: "c1", Mount: "/shared", Node: "n1"} }

// openDir opens the journal in dir; it is closed with the test.
func openDir(t testing.TB, dir string, o Options) *Journal {
	t.Helper()
	j, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func syncNow(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func closeNow(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// What the promises and the sizes rest on.
func TestBadgerOptions(t *testing.T) {
	o := badgerOptions("d", slog.Default())
	for what, ok := range map[string]bool{
		"the store syncs by itself":           !o.SyncWrites,
		"no compactor runs by itself":         o.NumCompactors == 0,
		"blocks are not compressed twice":     o.Compression == options.None,
		"no cache":                            o.BlockCacheSize == 0 && o.IndexCacheSize == 0,
		"nothing goes to the value log":       o.ValueThreshold > maxBody+1024 && o.ValueThreshold <= 15*o.MemTableSize/100,
		"a batch fits into a transaction":     batchBytes+maxBody+4096 < 15*o.MemTableSize/100,
		"a log is preallocated as far as":     roomLog >= o.MemTableSize*115/100+4096 && roomLog <= 2*o.MemTableSize,
		"the value log is small":              o.ValueLogFileSize == 1<<20,
		"merging goes to one level":           o.BaseLevelSize > 1<<39,
		"a flush never waits for a merge":     o.NumLevelZeroTablesStall > 4*tablesBeforeMerge,
		"one version":                         o.NumVersionsToKeep == 1,
		"no conflict detection":               !o.DetectConflicts,
		"the directory's lock is ours":        o.BypassLockGuard,
		"a damaged block is found by readers": o.ChecksumVerificationMode == options.NoVerification,
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
}

// Space comes back, to the file system, and what is kept can be read.
func TestSpaceIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 60 MB")
	}
	dir := t.TempDir()
	o := testOptions()
	o.MaxBytes = 8 << 20
	j := openDir(t, dir, o)
	appendLife(j, "Z Z+")
	most := int64(0)
	n := long.Or(750_000, 1_500_000) // of 25 bytes each
	for i := range n {
		r := sample(i, 1000)
		r.Request += 100
		j.Append(r)
		if i%10_000 == 0 {
			syncNow(t, j)
			most = max(most, j.Stats().Disk)
		}
	}
	syncNow(t, j)
	s := j.Stats()
	t.Logf("%d of %d records in %d MB (most %d MB), %d bytes each", s.Records, n, s.Disk>>20, most>>20, s.Bytes/int64(s.Records))
	if s.Bytes > o.MaxBytes || most > o.MaxBytes+Overhead/2 {
		t.Errorf("%d bytes, at most %d on disk", s.Bytes, most)
	}
	check := func(j *Journal) {
		t.Helper()
		recs := find(t, j, Filter{})
		if !slices.Equal(events(recs[:2]), []string{"requested Z", "granted Z"}) {
			t.Errorf("the open request's beginning is gone: %v", events(recs[:2]))
		}
		recs = recs[2:]
		if recs[0].Seq < uint64(n/4) || len(recs) < n/10 {
			t.Errorf("%d records, from %d on", len(recs), recs[0].Seq)
		}
		if last := recs[len(recs)-1].Seq; last < uint64(n+2) || last-recs[0].Seq+1 != uint64(len(recs)) {
			t.Errorf("%d records from %d to %d", len(recs), recs[0].Seq, last)
		}
	}
	check(j)
	closeNow(t, j)
	j = openDir(t, dir, o)
	check(j)
	if used := j.Stats().Disk; used > o.MaxBytes+16<<20 {
		t.Errorf("%d MB on disk after opening", used>>20)
	}
}

// Each run leaves a table behind; they do not become many.
func TestManyShortRuns(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 * tablesBeforeMerge {
		j := openDir(t, dir, testOptions())
		if n := j.st.(*badgerStore).db.Levels()[0].NumTables; n >= tablesBeforeMerge {
			t.Errorf("%d tables after %d runs", n, i)
		}
		j.Append(Record{Event: Note})
		closeNow(t, j)
	}
	if got := find(t, openDir(t, dir, testOptions()), Filter{}); len(got) != 5*tablesBeforeMerge {
		t.Errorf("%d records", len(got))
	}
}

// Readers, followers and writers, while old records are deleted and tables are
// merged: all see a sequence without holes or repetition.
func TestAllAtOnce(t *testing.T) {
	n := long.Or(160_000, 400_000)
	o := testOptions()
	o.MaxBytes = MinMaxBytes
	j := openDir(t, t.TempDir(), o)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var work, watch sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			for i := range n / 4 {
				r := sample(i, 1000)
				r.Request = uint64(w)<<40 + r.Request
				// Nothing that compresses well, so that there is much to delete.
				r.Reason = fmt.Sprintf("%x%x", i*2654435761, (i+w)*40503)
				j.Append(r)
				if i%5000 == w {
					syncNow(t, j)
				}
			}
		})
	}
	followed := [2]uint64{}
	for i := range followed {
		watch.Go(func() {
			err := j.Query(ctx, Filter{Follow: true}, func(r Record) error {
				// One that is slower than the journal deletes misses records.
				if r.Seq <= followed[i] || i == 0 && followed[i] != 0 && r.Seq != followed[i]+1 && r.Seq >= j.Stats().First {
					return fmt.Errorf("follower %d: %d after %d", i, r.Seq, followed[i])
				}
				if followed[i] = r.Seq; i == 1 && r.Seq%100 == 0 {
					runtime.Gosched()
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for range 2 {
		watch.Go(func() {
			for ctx.Err() == nil {
				last := uint64(0)
				if err := j.Query(context.Background(), Filter{}, func(r Record) error {
					if r.Seq <= last {
						return fmt.Errorf("%d after %d", r.Seq, last)
					}
					last = r.Seq
					return nil
				}); err != nil {
					t.Error(err)
					return
				}
				_ = j.Healthy()
			}
		})
	}
	work.Wait()
	syncNow(t, j)
	s := j.Stats()
	if s.Dropped != 0 || s.Damaged != 0 || s.First < 1000 {
		t.Errorf("%+v", s)
	}
	recs := find(t, j, Filter{})
	for recs[0].Seq < s.First { // of a request that was open when it was deleted
		recs = recs[1:]
	}
	if len(recs) != int(s.Next-s.First) || recs[0].Seq != s.First {
		t.Errorf("%d records from %d, %+v", len(recs), recs[0].Seq, s)
	}
	cancel()
	watch.Wait()
}

// An empty log file, as a kill at the wrong moment leaves it.
func TestOpenAfterAKillWhileALogWasMade(t *testing.T) {
	for _, names := range [][]string{{"00009.mem"}, {"000009.vlog"}, {"00009.mem", "000009.vlog"}} {
		dir := t.TempDir()
		j := openDir(t, dir, testOptions())
		j.Append(Record{Event: Note, Reason: "hello"})
		closeNow(t, j)
		for _, n := range names {
			if err := os.WriteFile(filepath.Join(dir, dbDir, n), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		j, err := OpenReadOnly(dir, testOptions())
		if err != nil {
			t.Fatalf("%v: %v", names, err)
		}
		if got := find(t, j, Filter{}); len(got) != 1 {
			t.Errorf("%v: %+v", names, got)
		}
		closeNow(t, j)
		j = openDir(t, dir, testOptions())
		if got := find(t, j, Filter{}); len(got) != 1 {
			t.Errorf("%v: %+v", names, got)
		}
	}
}

// Several processes can read at once, also after a crash; and what was open
// stays open.
func TestReadingWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, nil, "append", dir, "4194304")
	for range 3 {
		c.line(t)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	var js []*Journal
	n := 0
	for range 3 {
		j, err := OpenReadOnly(dir, Options{Cluster: "c1"})
		if err != nil {
			t.Fatal(err)
		}
		js = append(js, j)
		recs := find(t, j, Filter{})
		if len(recs) < 3000 {
			t.Errorf("%d records", len(recs))
		}
		if n != 0 && n != len(recs) {
			t.Errorf("%d records, and then %d", n, len(recs))
		}
		n = len(recs)
		if err := j.Query(context.Background(), Filter{Follow: true}, nil); !errors.Is(err, ErrReadOnly) {
			t.Error(err)
		}
		j.Append(Record{Event: Note})
		if len(find(t, j, Filter{})) != n {
			t.Error("it can be written")
		}
	}
	if _, err := Open(dir, testOptions()); !errors.Is(err, ErrInUse) {
		t.Errorf("a daemon starts while others read: %v", err)
	}
	for _, j := range js {
		closeNow(t, j)
	}
	j := openDir(t, dir, testOptions())
	// Request 1 is open all the time, and the kill may have come between the
	// first record of another one and its last.
	lost := j.Recovery().Lost
	if !slices.ContainsFunc(lost, func(r Record) bool { return r.Request == 1 }) || len(lost) > 2 {
		t.Errorf("lost %v", lost)
	}
}
