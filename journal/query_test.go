package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

func TestFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openMem(t, &memStore{}, Options{Node: "n1"})
		start := time.Now()
		add := func(r Record) {
			j.Append(r)
			time.Sleep(time.Second)
		}
		flock, posix := locks.Key{File: "1", Class: locks.Flock}, locks.Key{File: "1", Class: locks.Posix}
		add(Record{Event: Requested, Request: 1, Path: "a/b.txt", Key: flock, PID: 10})             // 1
		add(Record{Event: Granted, Request: 1, Path: "a/b.txt", Key: flock, PID: 10})               // 2
		add(Record{Event: Requested, Request: 2, Path: "a/c/d.txt", Key: posix, PID: 11})           // 3
		add(Record{Event: View, Node: "n2"})                                                        // 4
		add(Record{Event: Requested, Request: 3, Path: "a/[b].txt", Key: posix, PID: 10})           // 5
		add(Record{Event: Released, Request: 1, Path: "a/b.txt", Key: flock, PID: 10, Final: true}) // 6
		for _, c := range []struct {
			name string
			f    Filter
			want []uint64
		}{
			{"all", Filter{}, []uint64{1, 2, 3, 4, 5, 6}},
			{"path", Filter{Path: "a/b.txt"}, []uint64{1, 2, 6}},
			{"path that looks like a pattern", Filter{Path: "a/[b].txt"}, []uint64{1, 2, 5, 6}},
			{"escaped", Filter{Path: `a/\[b\].txt`}, []uint64{5}},
			{"star", Filter{Path: "a/*.txt"}, []uint64{1, 2, 5, 6}},
			{"double star", Filter{Path: "**/*.txt"}, []uint64{1, 2, 3, 5, 6}},
			{"directory", Filter{Path: "a/c/**"}, []uint64{3}},
			{"alternatives", Filter{Path: "a/{b,x}.txt"}, []uint64{1, 2, 6}},
			{"no path at all is not everything's", Filter{Path: "*"}, nil},
			{"event", Filter{Events: []Event{View, Granted}}, []uint64{2, 4}},
			{"class", Filter{Class: locks.Posix}, []uint64{3, 5}},
			{"pid", Filter{PID: 10}, []uint64{1, 2, 5, 6}},
			{"node", Filter{Node: "n2"}, []uint64{4}},
			{"request", Filter{Request: 1}, []uint64{1, 2, 6}},
			{"since", Filter{Since: start.Add(3 * time.Second)}, []uint64{4, 5, 6}},
			{"until", Filter{Until: start.Add(3 * time.Second)}, []uint64{1, 2, 3}},
			{"between", Filter{Since: start.Add(time.Second), Until: start.Add(2 * time.Second)}, []uint64{2}},
			{"after", Filter{After: 4}, []uint64{5, 6}},
			{"after all", Filter{After: 6}, nil},
			{"last", Filter{Last: 2}, []uint64{5, 6}},
			{"last of a kind", Filter{Last: 2, PID: 10, Events: []Event{Requested, Granted}}, []uint64{2, 5}},
			{"last of fewer", Filter{Last: 9, Node: "n2"}, []uint64{4}},
			{"several", Filter{PID: 10, Class: locks.Flock, Events: []Event{Requested, Released}}, []uint64{1, 6}},
		} {
			for _, when := range []string{"in memory", "stored", "in part"} {
				switch when {
				case "stored":
					if err := j.Sync(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				if got := seqs(find(t, j, c.f)); !slices.Equal(got, c.want) {
					t.Errorf("%s, %s: %v, want %v", c.name, when, got, c.want)
				}
			}
		}
		if err := j.Query(context.Background(), Filter{Path: "a/[b"}, nil); err == nil || !strings.Contains(err.Error(), "a/[b") {
			t.Errorf("a malformed pattern: %v", err)
		}
	})
}

// The last ones are found without reading all, with the same result.
func TestLastOfManyBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openMem(t, &memStore{}, Options{})
		j.idx.grain = 1000
		for i := range 5000 {
			j.Append(sample(i, 10))
			if i%50 == 0 {
				time.Sleep(DefaultDelay)
			}
		}
		for _, n := range []int{1, 10, 49, 50, 51, 1000, 5000, 9000} {
			got := seqs(find(t, j, Filter{Last: n}))
			if want := min(n, 5000); len(got) != want || got[len(got)-1] != 5000 {
				t.Errorf("last %d: %d records to %d", n, len(got), got[len(got)-1])
			}
		}
	})
}

// Blocks and extents are left out by their times only if none of their records
// would pass, also when the clock was set back and forth.
func TestTimesOfManyBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memStore{}
		j := openMem(t, m, Options{})
		j.idx.grain = 500
		start := time.Now()
		for i := range 2000 {
			at := time.Duration(i)
			switch {
			case i > 1500:
				at -= 700
			case i > 1000:
				at += 300
			}
			r := sample(i, 10)
			r.Time = start.Add(at * time.Second)
			j.Append(r)
			if i%20 == 0 {
				time.Sleep(DefaultDelay)
			}
		}
		if err := j.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		for _, j := range []*Journal{j, openMem(t, m.clone(), Options{})} {
			all := find(t, j, Filter{})
			for since := time.Duration(0); since < 2000; since += 97 {
				for _, long := range []time.Duration{1, 10, 300, 3000} {
					f := Filter{Since: start.Add(since * time.Second), Until: start.Add((since + long) * time.Second)}
					var want []uint64
					for _, r := range all {
						if !r.Time.Before(f.Since) && r.Time.Before(f.Until) {
							want = append(want, r.Seq)
						}
					}
					if got := seqs(find(t, j, f)); !slices.Equal(got, want) {
						t.Fatalf("%d seconds from %d on: %d records, want %d", long, since, len(got), len(want))
					}
				}
			}
		}
	})
}

// lateStore calls a function when a scan has ended.
type lateStore struct {
	memStore
	scanned func()
}

func (s *lateStore) scan(from, to blockKey, f func(blockKey, []byte) bool) error {
	defer s.scanned()
	return s.memStore.scan(from, to, f)
}

// What is written between a query's look at the store and its look at the
// memory is found in neither, and must be found all the same.
func TestNothingIsMissedBetweenStoreAndMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lateStore{scanned: func() {}}
		j, err := openStore(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		add := func() {
			for i := range 10 {
				j.Append(sample(i, 1))
			}
		}
		add()
		if err := j.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		add()
		rounds := 0
		s.scanned = func() {
			if rounds++; rounds <= 3 {
				if err := j.Sync(context.Background()); err != nil {
					t.Error(err)
				}
				add()
			}
		}
		recs := find(t, j, Filter{})
		for i, r := range recs {
			if r.Seq != uint64(i+1) {
				t.Fatalf("record %d is number %d", i, r.Seq)
			}
		}
		if len(recs) < 20 {
			t.Errorf("%d records", len(recs))
		}
	})
}

// What is deleted under a slow query is missing from it, but is no damage.
func TestDeletingUnderAQueryIsNoDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openMem(t, &memStore{}, Options{})
		j.opt.MaxBytes, j.idx.grain = 4000, 300
		more := func(n int) {
			for i := range n {
				j.Append(sample(i, 10))
				if i%20 == 19 {
					if err := j.Sync(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		more(300)
		var recs []Record
		if err := j.Query(context.Background(), Filter{}, func(r Record) error {
			if recs = append(recs, r); len(recs) == 30 {
				more(1000)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		gaps := 0
		for i := range recs[1:] {
			if recs[i+1].Seq != recs[i].Seq+1 {
				gaps++
			}
		}
		if s := j.Stats(); gaps != 1 || s.Damaged != 0 || s.First < 300 {
			t.Errorf("%d gaps, %+v", gaps, s)
		}
		if notes := find(t, j, Filter{Events: []Event{Note}}); len(notes) > 0 {
			t.Errorf("%+v", notes)
		}
	})
}

// A query ends, however fast records come.
func TestAQueryDoesNotChaseNewRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openMem(t, &memStore{}, Options{})
		for i := range 1000 {
			j.Append(sample(i, 1))
		}
		n := 0
		if err := j.Query(context.Background(), Filter{}, func(Record) error {
			if n++; n > 100_000 {
				return errors.New("it does not end")
			}
			j.Append(sample(n, 1))
			j.Append(sample(n, 1))
			return nil
		}); err != nil || n < 1000 || n > 5000 {
			t.Errorf("%v after %d records", err, n)
		}
	})
}

func TestTheCallersErrorEndsAQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openMem(t, &memStore{}, Options{})
		for i := range 10 {
			j.Append(sample(i, 1))
		}
		full := errors.New("pipe is full")
		for _, f := range []Filter{{}, {Follow: true}, {Last: 5}} {
			n := 0
			err := j.Query(context.Background(), f, func(Record) error {
				if n++; n == 3 {
					return full
				}
				return nil
			})
			if err != full || n != 3 {
				t.Errorf("%+v: %v after %d records", f, err, n)
			}
		}
		gone := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(context.Background())
		n := 0
		err := j.Query(ctx, Filter{}, func(Record) error { n++; cancel(gone); return nil })
		if err != gone || n != 1 {
			t.Errorf("%v after %d records", err, n)
		}
	})
}

// A follower gets every record once, in order, while they are appended, written
// and deleted; and however slow it is, nobody waits for it.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memStore{}
		j := openMem(t, m, Options{})
		for i := range 100 {
			j.Append(sample(i, 10))
		}
		ctx, cancel := context.WithCancel(context.Background())
		type result struct {
			seqs []uint64
			err  error
		}
		follow := func(f Filter, each func()) chan result {
			done := make(chan result)
			f.Follow = true
			go func() {
				var r result
				r.err = j.Query(ctx, f, func(rec Record) error {
					r.seqs = append(r.seqs, rec.Seq)
					each()
					return nil
				})
				done <- r
			}()
			return done
		}
		fast := follow(Filter{}, func() {})
		slow := follow(Filter{}, func() { time.Sleep(3 * time.Millisecond) })
		tail := follow(Filter{Last: 10}, func() {})
		some := follow(Filter{Events: []Event{Granted}, After: 50}, func() {})
		synctest.Wait()
		start := time.Now()
		for i := 100; i < 3000; i++ {
			j.Append(sample(i, 10))
			if i%100 == 0 {
				time.Sleep(2 * DefaultDelay)
			}
		}
		if d := time.Since(start); d > 30*2*DefaultDelay {
			t.Errorf("the appends took %v", d)
		}
		time.Sleep(10 * time.Second)
		cancel()
		for name, c := range map[string]struct {
			done  chan result
			first uint64
			n     int
		}{"fast": {fast, 1, 3000}, "slow": {slow, 1, 3000}, "tail": {tail, 91, 2910}, "some": {some, 53, 983}} {
			r := <-c.done
			if !errors.Is(r.err, context.Canceled) {
				t.Errorf("%s: %v", name, r.err)
			}
			if len(r.seqs) != c.n || r.seqs[0] != c.first || !slices.IsSorted(r.seqs) {
				t.Errorf("%s: %d records from %d on", name, len(r.seqs), r.seqs[0])
			}
		}
	})
}

func TestFollowersEndWithTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openMem(t, &memStore{}, Options{})
		done := make(chan error)
		n := 0
		go func() {
			done <- j.Query(context.Background(), Filter{Follow: true}, func(Record) error { n++; return nil })
		}()
		synctest.Wait()
		j.Append(Record{Event: Note})
		j.Append(Record{Event: Stop})
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) || n != 2 {
			t.Errorf("%v after %d records", err, n)
		}
		if err := j.Query(context.Background(), Filter{}, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("Query after Close: %v", err)
		}
	})
}

// Damage to a block costs that block, and is told once.
func TestADamagedBlockIsSkippedAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name    string
			damage  func(m *memStore)
			missing []uint64
			told    string
		}{
			{"one", func(m *memStore) { m.pairs[3].value[50] ^= 1 }, []uint64{31, 40}, "records 31 to 40: checksum"},
			{"two in a row", func(m *memStore) { m.pairs[3].value[50] ^= 1; m.pairs[4].value = nil }, []uint64{31, 50}, "records 31 to 50"},
			{"gone", func(m *memStore) { m.pairs = slices.Delete(m.pairs, 3, 5) }, []uint64{31, 50}, "records 31 to 50: missing"},
			{"the first", func(m *memStore) { m.pairs = m.pairs[1:] }, []uint64{1, 10}, "records 1 to 10: missing"},
			{"swapped", func(m *memStore) {
				m.pairs[3].value, m.pairs[4].value = m.pairs[4].value, m.pairs[3].value
			}, []uint64{31, 50}, "records 31 to 50"},
			{"the last", func(m *memStore) { m.pairs[9].value[50] ^= 1 }, []uint64{91, 100}, "records 91 to 218"},
		} {
			m := &memStore{}
			j := openMem(t, m, Options{})
			for i := range 100 {
				j.Append(Record{Event: Waiting, Reason: fmt.Sprint("n", i+1)})
				if i%10 == 9 {
					if err := j.Sync(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
			}
			check := func(j *Journal, live bool) {
				t.Helper()
				recs := find(t, j, Filter{After: 0})
				var missing []uint64
				got := map[uint64]bool{}
				for _, r := range recs {
					if r.Reason == fmt.Sprint("n", r.Seq) {
						got[r.Seq] = true
					}
				}
				for n := uint64(1); n <= 100; n++ {
					if !got[n] {
						missing = append(missing, n)
					}
				}
				if len(missing) == 0 || missing[0] != c.missing[0] || missing[len(missing)-1] != c.missing[1] ||
					len(missing) != int(c.missing[1]-c.missing[0])+1 {
					t.Errorf("%s: missing %v", c.name, missing)
				}
				told := 0
				for _, r := range find(t, j, Filter{}) {
					if r.Event == Note && strings.HasPrefix(r.Reason, "records can't be read") {
						told++
						if !live && !strings.Contains(r.Reason, c.told) {
							t.Errorf("%s: %q", c.name, r.Reason)
						}
					}
				}
				if told != 1 {
					t.Errorf("%s: told %d times", c.name, told)
				}
			}
			copied := m.clone()
			c.damage(copied)
			check(openMem(t, copied, Options{}), false)
			// The same while the journal is open; what is missing at its
			// beginning is not missed then.
			if c.name != "the first" {
				c.damage(m)
				check(j, true)
				if d := j.Stats().Damaged; d == 0 {
					t.Errorf("%s: not counted", c.name)
				}
			}
		}
	})
}
