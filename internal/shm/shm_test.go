package shm

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// small is a form of which all fits into some pages.
var small = Form{Version: 7, Texts: 512, Tables: []Spec{{Words: 7, Texts: 2, Max: 300}, {Words: 24, Texts: 1, Max: 100}}}

func create(tb testing.TB, f Form) *Tables {
	tb.Helper()
	t, err := Create("test", 5, f)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if t.mem != nil {
			t.Close()
		}
	})
	return t
}

// reopen is what another process would find.
func reopen(tb testing.TB, t *Tables, f Form) *Tables {
	tb.Helper()
	fd, err := unix.FcntlInt(uintptr(t.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	n, err := Open(fd, 5, f)
	if err != nil {
		unix.Close(fd)
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if n.mem != nil {
			n.Close()
		}
	})
	return n
}

// model is what tables should have.
type model struct {
	records [2]map[uint32]row
	serial  uint64
}

type row struct {
	texts [2]string
	value uint64
}

func newModel() *model { return &model{records: [2]map[uint32]row{{}, {}}} }

func (r row) words(t *Tables, table int) []uint64 {
	s := small.Tables[table]
	w := make([]uint64, s.Words)
	for i := range w {
		if i >= s.Texts {
			w[i] = r.value * uint64(i+1)
			continue
		}
		ref, err := t.Text(r.texts[i])
		if err != nil {
			panic(err)
		}
		w[i] = ref
	}
	return w
}

// step makes one random change of t and of the model.
func (m *model) step(t *Tables, rnd *rand.Rand) {
	n := rnd.IntN(2)
	m.serial++
	r := row{value: m.serial}
	for i := range small.Tables[n].Texts {
		if k := rnd.IntN(12); k > 0 {
			r.texts[i] = strings.Repeat(fmt.Sprint(k, "/"), 1+k*k*k/3)
		}
	}
	numbers := slices.Sorted(maps.Keys(m.records[n]))
	op := rnd.IntN(100)
	switch {
	case op == 0:
		t.Clear()
		m.records = newModel().records
	case op < 40 && len(numbers) < 90 || len(numbers) == 0:
		i, err := t.Put(n, r.words(t, n))
		if err != nil {
			panic(err)
		}
		m.records[n][i] = r
	case op < 70:
		i := numbers[rnd.IntN(len(numbers))]
		if err := t.Set(n, i, r.words(t, n)); err != nil {
			panic(err)
		}
		m.records[n][i] = r
	default:
		i := numbers[rnd.IntN(len(numbers))]
		t.Delete(n, i)
		delete(m.records[n], i)
	}
}

// differs is how t differs from the model; nil if it does not.
func (m *model) differs(t *Tables) error {
	for n := range m.records {
		found := 0
		for i, w := range t.All(n) {
			found++
			r, ok := m.records[n][i]
			if !ok {
				return fmt.Errorf("record %d of table %d should not be there", i, n)
			}
			for j, x := range w {
				if j < small.Tables[n].Texts && t.String(x) != r.texts[j] || j >= small.Tables[n].Texts && x != r.value*uint64(j+1) {
					return fmt.Errorf("record %d of table %d: word %d is %x", i, n, j, x)
				}
			}
		}
		if found != len(m.records[n]) {
			return fmt.Errorf("table %d has %d records, and should have %d", n, found, len(m.records[n]))
		}
	}
	return nil
}

// Whoever opens the tables finds what is in them, and goes on; nothing is lost of
// their room.
func TestWhoOpensGoesOn(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m, tables := newModel(), create(t, small)
		for i := range 2000 {
			if m.step(tables, rnd); i%97 == 0 {
				next := reopen(t, tables, small)
				tables.Close()
				tables = next
			}
			if err := m.differs(tables); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
		}
		if err := tables.Full(); err != nil {
			t.Fatal(err)
		}
		used := 0
		for _, c := range tables.texts.class {
			used += int(c.top) - len(c.free)
		}
		if used > 11+spares {
			t.Errorf("%d texts are there", used)
		}
		for i := range tables.tables {
			tb := &tables.tables[i]
			if free := len(tb.free) + int(tb.place.top-tb.fresh); free+len(m.records[i]) != int(tb.place.top) {
				t.Errorf("table %d: %d slots, of which %d are free, and %d records", i, tb.place.top, free, len(m.records[i]))
			}
		}
		tables.Close()
	}
}

// What does not fit is told, and to who opens it as well.
func TestFull(t *testing.T) {
	one := Form{Texts: 1, Tables: []Spec{{Words: 1, Max: 1}}}
	for what, fill := range map[string]func(*Tables) error{
		"records": func(t *Tables) error {
			t.Put(0, []uint64{1})
			_, err := t.Put(0, []uint64{1})
			return err
		},
		"texts": func(t *Tables) error {
			t.Text("a")
			_, err := t.Text("b")
			return err
		},
		"long": func(t *Tables) error {
			_, err := t.Text(strings.Repeat("x", MaxText+1))
			return err
		},
		"other words": func(t *Tables) error {
			_, err := t.Put(0, []uint64{1, 2})
			return err
		},
		"twice": func(t *Tables) error {
			i, _ := t.Put(0, []uint64{1})
			t.Delete(0, i)
			t.Delete(0, i)
			return t.Full()
		},
		"nothing": func(t *Tables) error { return t.Set(0, 1, []uint64{1}) },
		"caller":  func(t *Tables) error { t.SetFull("why not"); return t.Full() },
	} {
		tables := create(t, one)
		if err := fill(tables); !errors.Is(err, ErrFull) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := tables.Put(0, []uint64{1}); !errors.Is(err, ErrFull) {
			t.Errorf("%s: another record: %v", what, err)
		}
		if _, err := Open(tables.FD(), 5, one); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), tables.full.Error()[len(ErrFull.Error())+2:]) {
			t.Errorf("%s: %v, and it was %v", what, err, tables.full)
		}
	}
}

// A text that goes while a record refers to it would be another one for that.
func TestTextsOfRecords(t *testing.T) {
	f := Form{Tables: []Spec{{Words: 1, Texts: 1, Max: 10}}}
	tables := create(t, f)
	ref, _ := tables.Text("kept")
	a, _ := tables.Put(0, []uint64{ref})
	b, _ := tables.Put(0, []uint64{ref})
	tables.Delete(0, a)
	for i := range 3 * spares {
		tables.Text(fmt.Sprint("another one ", i))
	}
	next := reopen(t, tables, f)
	if got := next.String(next.Get(0, b)[0]); got != "kept" {
		t.Errorf("%q", got)
	}
	next.Delete(0, b)
	for i := range 3 * spares {
		next.Text(fmt.Sprint("yet another one ", i))
	}
	if _, err := next.Put(0, []uint64{ref}); !errors.Is(err, ErrFull) {
		t.Errorf("a text that is gone: %v", err)
	}
}

// What is of another kind is told from what is damaged.
func TestOthersTables(t *testing.T) {
	tables := create(t, small)
	other, version := small, small
	other.Tables = []Spec{{Words: 9, Max: 1}}
	version.Version++
	for what, c := range map[string]struct {
		generation uint64
		form       Form
		want       error
	}{
		"form":       {5, other, ErrVersion},
		"version":    {5, version, ErrVersion},
		"generation": {6, small, ErrGeneration},
	} {
		if _, err := Open(tables.FD(), c.generation, c.form); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	tables.w[headVersion]++
	if _, err := Open(tables.FD(), 5, small); !errors.Is(err, ErrVersion) {
		t.Errorf("a later program: %v", err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	if _, err := Open(pipe[0], 5, small); !errors.Is(err, ErrDamaged) {
		t.Errorf("a pipe: %v", err)
	}
	if _, err := Open(-1, 5, small); !errors.Is(err, ErrDamaged) || !errors.Is(err, unix.EBADF) {
		t.Errorf("nothing: %v", err)
	}
}

// Forms that cannot be are refused.
func TestForms(t *testing.T) {
	for _, s := range []Spec{{}, {Words: 1}, {Words: maxWords + 1, Max: 1}, {Words: 1, Texts: 2, Max: 1}, {Words: 20, Texts: 9, Max: 1}, {Words: 1, Max: maxSlots + 1}, {Words: 1, Texts: -1, Max: 1}} {
		if _, err := Create("test", 1, Form{Tables: []Spec{s}}); err == nil {
			t.Errorf("%+v was made", s)
		}
	}
	if _, err := Create("test", 1, Form{Tables: make([]Spec, maxTables+1)}); err == nil {
		t.Error("too many tables were made")
	}
	if _, err := Create("test", 1, Form{Texts: maxSlots + 1}); err == nil {
		t.Error("too many texts")
	}
}

// The memory is shared by the kernel only when it is used.
func TestLittleIsTaken(t *testing.T) {
	tables := create(t, Form{Tables: []Spec{{Words: 24, Max: 1 << 20}}})
	if _, err := tables.Put(0, make([]uint64, 24)); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(tables.FD(), &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("%d bytes, %v", st.Blocks*512, err)
	}
	before := tables.Clock()
	if unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil); tables.Clock() <= before {
		t.Error("the clock stands still")
	}
}

func BenchmarkRecord(b *testing.B) {
	t := create(b, Form{Tables: []Spec{{Words: 24, Texts: 2, Max: 1000}}})
	w := make([]uint64, 24)
	w[0], _ = t.Text("/some/path/of/a/file")
	w[1], _ = t.Text("sqlite3")
	b.Run("put and delete", func(b *testing.B) {
		for b.Loop() {
			i, err := t.Put(0, w)
			if err != nil {
				b.Fatal(err)
			}
			t.Delete(0, i)
		}
	})
	b.Run("set", func(b *testing.B) {
		i, _ := t.Put(0, w)
		for b.Loop() {
			t.Set(0, i, w)
		}
	})
	b.Run("text", func(b *testing.B) {
		for b.Loop() {
			t.Text("/some/path/of/a/file")
		}
	})
}

// A text that is asked for stays until the record is there that refers to it, also if it
// is the one that would be given up next, and others come meanwhile.
func TestATextStaysUntilItIsReferredTo(t *testing.T) {
	f := Form{Version: 1, Tables: []Spec{{Words: 3, Texts: 3, Max: 100}}, Texts: 200}
	tables, err := Create("test", 1, f)
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	text := func(s string) uint64 {
		t.Helper()
		ref, err := tables.Text(s)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	for i := range 3 * spares {
		text(fmt.Sprint("other ", i))
		for j := range spares { // at whatever place among those that no record refers to
			known := fmt.Sprint("other ", max(i-j, 0))
			refs := []uint64{text(known), text(fmt.Sprint("new ", i, " ", j)), text(fmt.Sprint("another ", i, " ", j))}
			n, err := tables.Put(0, refs)
			if err != nil {
				t.Fatalf("%d, %d: %v", i, j, err)
			}
			if got := tables.String(refs[0]); got != known {
				t.Fatalf("%d, %d: it is %q", i, j, got)
			}
			tables.Delete(0, n)
		}
	}
}

// Who opens tables may take all records away at once.
func TestTextsThatWereFoundAreGivenUp(t *testing.T) {
	f := Form{Version: 1, Tables: []Spec{{Words: 1, Texts: 1, Max: 300}}, Texts: 300}
	tables, err := Create("test", 1, f)
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	for i := range 3 * spares {
		ref, err := tables.Text(fmt.Sprint("text ", i))
		if err == nil {
			_, err = tables.Put(0, []uint64{ref})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.FcntlInt(uintptr(tables.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	found, err := Open(fd, 1, f)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for n := range found.All(0) {
		found.Delete(0, n)
	}
	if err := found.Full(); err != nil || len(found.texts.by) != spares {
		t.Errorf("%d texts are left: %v", len(found.texts.by), err)
	}
}

// A text that was asked for last but one, long ago, is given up as any other, and is
// there anew when it is asked for again.
func TestATextAskedForLastIsGivenUp(t *testing.T) {
	tables := create(t, Form{Version: 1, Tables: []Spec{{Words: 1, Texts: 1, Max: 1000}}})
	put := func(s string) uint32 {
		t.Helper()
		ref, err := tables.Text(s)
		if err != nil {
			t.Fatal(err)
		}
		n, err := tables.Put(0, []uint64{ref})
		if err != nil {
			t.Fatal(err)
		}
		if got := tables.String(tables.Get(0, n)[0]); got != s {
			t.Fatalf("a record refers to %q, want %q", got, s)
		}
		return n
	}
	var records []uint32
	for i := range 3 * spares {
		records = append(records, put(fmt.Sprint("other ", i)))
	}
	old, _ := tables.Text("old")
	for range atHand + 1 {
		tables.Text("asked for all the time")
	}
	for _, n := range records {
		tables.Delete(0, n)
	}
	if tables.String(old) != "" {
		t.Fatal("it is still there")
	}
	put("old")
}
