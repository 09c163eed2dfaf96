package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

// damagedCopy copies the journal in src, and has change at one of its files.
func damagedCopy(t *testing.T, src, file string, change func([]byte) []byte) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("cp", "-a", src+"/.", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	name := filepath.Join(dir, dbDir, file)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if b = change(b); b == nil {
		err = os.Remove(name)
	} else {
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Whatever happens to a file of the database, the journal opens, tells what is
// missing, and has the rest.
func TestDamagedFiles(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))

	// A journal of several tables and of blocks of all sizes.
	src := t.TempDir()
	j := openDir(t, src, testOptions())
	const n = 200_000
	for i := range n {
		j.Append(sample(i, 1000))
		if i%1000 < 20 && i < 50_000 || i%10_000 == 0 {
			syncNow(t, j)
		}
	}
	closeNow(t, j)
	all := j.Stats().Next - 1
	tables, err := filepath.Glob(filepath.Join(src, dbDir, "*.sst"))
	if err != nil || len(tables) < 2 {
		t.Fatal(tables, err)
	}

	table := func() string { return filepath.Base(tables[rnd.IntN(len(tables))]) }
	flip := func(b []byte) []byte { b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8); return b }
	// In the structure at a table's end.
	flipIndex := func(b []byte) []byte { b[len(b)-1-rnd.IntN(len(b)/400)] ^= 1 << rnd.IntN(8); return b }
	page := func(b []byte) []byte { at := rnd.IntN(len(b)) &^ 4095; clear(b[at:min(at+4096, len(b))]); return b }
	gone := func([]byte) []byte { return nil }
	half := func(b []byte) []byte { return b[:len(b)/2] }

	// A table of 4 MiB has so many records at least 20 bytes each.
	const perTable = memTable * 5 / 4 / 20
	for _, c := range []struct {
		name   string
		file   func() string
		change func([]byte) []byte
		times  int
		lost   uint64 // at most
	}{
		{"a bit of a table", table, flip, 4, 2 * blockRecords},
		{"a bit of a table's index", table, flipIndex, 2, 2 * blockRecords},
		{"a page of a table", table, page, 2, 30 * blockRecords},
		{"half a table", table, half, 1, perTable},
		{"a table", table, gone, 1, perTable},
		{"a bit of the list of tables", func() string { return "MANIFEST" }, flip, 2, perTable},
		{"the list of tables", func() string { return "MANIFEST" }, gone, 1, 0},
		{"a bit of the key registry", func() string { return "KEYREGISTRY" }, flip, 1, 0},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			times := long.Or(1, c.times) * *more
			for range times {
				testDamaged(t, damagedCopy(t, src, c.file(), c.change), all, c.lost)
			}
		})
	}
}

func testDamaged(t *testing.T, dir string, all, lost uint64) {
	t.Helper()
	j, err := Open(dir, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer closeNow(t, j)
	got, false_ := uint64(0), 0
	note := ""
	last := uint64(0)
	scan(t, j, Filter{}, func(r Record) {
		switch {
		case r.Event == Note:
			note += r.Reason
		case r.Event == Recovered:
		case r.Event == Lost || r.Event == Withdrawn: // of a request whose end is missing
		case r.Request != (r.Seq-1)/3+1:
			false_++
		default:
			got++
			last = r.Seq
		}
	})
	missing := all - got
	if false_ > 0 || missing > lost {
		t.Errorf("%d of %d records are missing, %d are false", missing, all, false_)
	}
	// What was at the end of the journal can't be missed.
	if missing > 0 && last == all && !strings.Contains(note, "records can't be read") {
		t.Errorf("%d records are missing, and nothing tells so: %q", missing, note)
	}
	if old := j.Recovery().Rebuilt; old != "" {
		if !strings.Contains(note, old) {
			t.Errorf("the note does not tell where the damaged one is: %q", note)
		}
		if _, err := os.Stat(filepath.Join(old, "KEYREGISTRY")); err != nil {
			t.Error(err)
		}
	}
	// It can be written, and its tables copied: to drop the first block is to
	// merge the rest.
	if err := j.st.(*badgerStore).drop(2); err != nil {
		t.Error(err)
	}
	j.Append(Record{Event: Note, Reason: "after"})
	syncNow(t, j)
	n := uint64(0)
	scan(t, j, Filter{Events: []Event{Requested, Granted, Released}}, func(Record) { n++ })
	if n+blockRecords < got {
		t.Errorf("%d records, and %d after a merge", got, n)
	}
}

// What is only in Badger's log, after a crash, is found there, too.
func TestDamageAfterACrash(t *testing.T) {
	src := t.TempDir()
	j := openDir(t, src, testOptions())
	const n = 5000
	for _, r := range samples(n) {
		j.Append(r)
	}
	syncNow(t, j)
	for name, change := range map[string]func([]byte) []byte{
		"nothing": func(b []byte) []byte { return b },
		"gone":    func([]byte) []byte { return nil },
		"flipped": func(b []byte) []byte { b[1] ^= 1; return b },
	} {
		// As the crash of another process would leave it.
		dir := damagedCopy(t, src, "MANIFEST", change)
		j, err := OpenReadOnly(dir, Options{})
		if err != nil {
			t.Fatal(name, err)
		}
		if got := len(find(t, j, Filter{})); got != n {
			t.Errorf("%s: %d records of %d", name, got, n)
		}
		if (j.Recovery().Rebuilt != "") != (name == "flipped") {
			t.Errorf("%s: %+v", name, j.Recovery())
		}
		closeNow(t, j)
	}
}

// A rebuild that is stopped anywhere is finished by the next one.
func TestRebuildCanBeStopped(t *testing.T) {
	src := t.TempDir()
	j := openDir(t, src, testOptions())
	for _, r := range samples(3000) {
		j.Append(r)
	}
	closeNow(t, j)
	for step, stop := range []func(dir string) error{
		func(dir string) error { return os.Mkdir(filepath.Join(dir, rebuildDir), 0o700) },
		func(dir string) error {
			return errors.Join(
				exec.Command("cp", "-a", filepath.Join(dir, dbDir), filepath.Join(dir, rebuildDir)).Run(),
				os.Rename(filepath.Join(dir, dbDir), filepath.Join(dir, damagedDir)))
		},
		func(dir string) error { return os.Mkdir(filepath.Join(dir, damagedDir), 0o700) },
	} {
		for name, open := range map[string]func(string, Options) (*Journal, error){"Open": Open, "OpenReadOnly": OpenReadOnly} {
			t.Run(fmt.Sprint(step, name), func(t *testing.T) {
				dir := damagedCopy(t, src, "KEYREGISTRY", func(b []byte) []byte { return b })
				if err := stop(dir); err != nil {
					t.Fatal(err)
				}
				j, err := open(dir, testOptions())
				if err != nil {
					t.Fatal(err)
				}
				defer closeNow(t, j)
				if n := len(find(t, j, Filter{})); n != 3000 {
					t.Errorf("%d records", n)
				}
			})
		}
	}
}

// Leftovers of earlier damage are no obstacle.
func TestDamageAgain(t *testing.T) {
	dir := t.TempDir()
	closeNow(t, openDir(t, dir, testOptions()))
	for range 2 {
		if err := os.WriteFile(filepath.Join(dir, dbDir, "MANIFEST"), []byte("?"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, rebuildDir), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(dir, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(dir, damagedDir); j.Recovery().Rebuilt != want {
			t.Errorf("%+v", j.Recovery())
		}
		closeNow(t, j)
	}
}
