package journal

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Records are kept for MaxAge, and at most a fourteenth of it longer.
func TestOldRecordsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		start := time.Now()
		m := &memStore{}
		o := Options{MaxAge: 14 * 24 * hour, up: func() time.Duration { return time.Since(start) }}
		j := openMem(t, m, o)
		appendLife(j, "A A+ B")
		var appended []time.Time
		for range 40 * 24 { // a record an hour
			j.Append(Record{Event: Note})
			appended = append(appended, time.Now())
			time.Sleep(hour)
			synctest.Wait()
			oldest := time.Since(j.Stats().Oldest)
			if oldest > 15*24*hour+12*hour || len(appended) > 16*24 && oldest < 14*24*hour {
				t.Fatalf("after %v the oldest record is %v old", time.Since(start), oldest)
			}
		}
		// The open requests are still there, from their beginning, once.
		appendLife(j, "A- C C+")
		want := []string{"requested A", "granted A", "requested B"}
		recs := find(t, j, Filter{})
		if got := events(recs[:3]); !slices.Equal(got, want) {
			t.Errorf("begins with %v", got)
		}
		if n := len(recs); n < 14*24 || n > 17*24 {
			t.Errorf("%d records", n)
		}
		if n := len(m.pairs); n > 20*24 {
			t.Errorf("%d blocks", n)
		}
		if err := j.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		j = openMem(t, m.clone(), o)
		r := j.Recovery()
		if len(r.Lost) != 1 || r.Lost[0].Request != 3 || len(r.Withdrawn) != 1 || r.Withdrawn[0].Request != 2 || len(r.Damaged) > 0 {
			t.Errorf("%+v", r)
		}

		// An idle host deletes, too: a journal may be about people.
		time.Sleep(16 * 24 * hour)
		synctest.Wait()
		if s := j.Stats(); s.Records != 0 || s.Bytes > 1000 {
			t.Errorf("%d records are left", s.Records)
		}
		if got := find(t, j, Filter{}); len(got) != 0 {
			t.Errorf("%d records can be read", len(got))
		}
		j.Append(Record{Event: Note})
		if got := find(t, j, Filter{}); len(got) != 1 || got[0].Seq < 40*24 {
			t.Errorf("%v", got)
		}
	})
}

// Whatever the wall clock does, nothing is deleted before its time.
func TestTheWallClockDeletesNothing(t *testing.T) {
	far := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		first time.Time // of the records of the first run; zero: the right time
	}{
		{"right", time.Time{}},
		{"ahead", far},
		{"behind", time.Unix(0, 0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				o := Options{MaxAge: 14 * 24 * time.Hour, up: func() time.Duration { return time.Since(start) }}
				m := &memStore{}
				j := openMem(t, m, o)
				j.idx.span = 0
				for i := range 30 {
					r := Record{Event: Note}
					if i%2 == 0 {
						r.Time = c.first
					}
					j.Append(r)
					time.Sleep(time.Minute)
				}
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				// Runs that follow each other, whatever the clock was set to.
				for range 10 {
					j = openMem(t, m, o)
					j.Append(Record{Event: Note, Time: c.first})
					j.Append(Record{Event: Note})
					time.Sleep(2 * tendEvery)
					if err := j.Close(); err != nil {
						t.Fatal(err)
					}
				}
				j = openMem(t, m, o)
				if got := find(t, j, Filter{}); len(got) != 50 || got[0].Seq != 1 {
					t.Errorf("%d records from %d on", len(got), got[0].Seq)
				}
			})
		})
	}
}

func TestAgeClock(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	up := 50 * time.Second
	for _, c := range []struct {
		last time.Time
		want uint64
	}{
		{now, 1000},
		{now.Add(-90 * time.Second), 1090},
		{now.Add(time.Hour), 1000},                      // the clock was set back
		{now.Add(-30 * 24 * time.Hour), 1000 + 24*3600}, // set ahead, or was off
		{time.Unix(0, 0), 1000 + 24*3600},
	} {
		a := newAgeClock(1000, c.last, now, func() time.Duration { return up })
		if got := a.age(); got != c.want {
			t.Errorf("last %v: %d, want %d", c.last, got, c.want)
		}
		up += 10 * time.Second
		if got := a.age(); got != c.want+10 {
			t.Errorf("last %v: %d ten seconds later", c.last, got)
		}
	}
	if a, b := bootTime(), bootTime(); a <= 0 || b < a {
		t.Errorf("boot time %v, %v", a, b)
	}
}

// Nothing is deleted before the state that replaces it is safe.
func TestTheStateIsSafeBeforeTheRestIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memStore{}
		var mu sync.Mutex
		var ops []string
		m.hook = func(op string) (error, bool) {
			mu.Lock()
			defer mu.Unlock()
			if op != "room" {
				ops = append(ops, op)
			}
			return nil, false
		}
		j := openMem(t, m, Options{})
		j.opt.MaxBytes, j.idx.grain = 5000, 300
		for i := range 1000 {
			j.Append(sample(i, 10))
			if i%20 == 0 {
				time.Sleep(DefaultDelay)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		drops := 0
		for i, op := range ops {
			if op == "drop" {
				drops++
				if ops[i-1] != "sync" || ops[i-2] != "write" {
					t.Errorf("before a drop: %v", ops[max(i-4, 0):i])
				}
			}
		}
		if drops < 3 {
			t.Errorf("%d drops", drops)
		}
	})
}

// A run that ends after it has said where the journal begins, and before it has
// deleted what is before that, hides nothing of the rest.
func TestAnUnfinishedDeletionHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memStore{}
		var left *memStore // what there is when something is to be deleted
		m.hook = func(op string) (error, bool) {
			if op == "drop" && left == nil {
				left = m.clone()
			}
			return nil, false
		}
		j := openMem(t, m, Options{})
		j.opt.MaxBytes, j.idx.grain = 5000, 300
		for i := 0; left == nil; i++ {
			j.Append(sample(i, 10))
			if i%20 == 19 {
				if err := j.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		want, stats := find(t, j, Filter{}), j.Stats()
		if stats.First < 2 || uint64(len(want)) != stats.Records {
			t.Fatalf("%d records: %+v", len(want), stats)
		}

		j = openMem(t, left, Options{})
		if err := j.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := find(t, j, Filter{}) // with what the recovery adds
		if !slices.Equal(got[:min(len(want), len(got))], want) {
			t.Errorf("%d records from %d on, want %d from %d on, and more", len(got), got[0].Seq, len(want), want[0].Seq)
		}
		if s := j.Stats(); s.First != stats.First || s.Records != uint64(len(got)) {
			t.Errorf("%+v, want First %d, Records %d", s, stats.First, len(got))
		}
	})
}

// A state of many requests takes several blocks; all are read back.
func TestManyOpenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memStore{}
		j := openMem(t, m, Options{})
		j.opt.MaxBytes, j.idx.grain = 30_000, 1000
		const open = 1000
		for i := range open {
			for _, e := range []Event{Requested, Waiting, Waiting, Granted} {
				j.Append(Record{Event: e, Request: uint64(i + 1), Path: "p"})
			}
		}
		for i := range 4000 {
			r := sample(i, 10)
			r.Request += 10_000
			j.Append(r)
			if i%100 == 0 {
				time.Sleep(DefaultDelay)
			}
		}
		if err := j.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		if f := j.Stats().First; f < open*4 {
			t.Fatalf("begins at %d", f)
		}
		check := func(j *Journal) {
			t.Helper()
			recs := find(t, j, Filter{})[:3*open]
			for i := range open { // the first Waiting of each is history
				if got := events(recs[3*i : 3*i+3]); len(got) != 3 || recs[3*i].Request != uint64(i+1) ||
					recs[3*i].Event != Requested || recs[3*i+1].Event != Waiting || recs[3*i+2].Event != Granted {
					t.Fatalf("request %d: %v", i+1, got)
				}
			}
		}
		check(j)
		j = openMem(t, m.clone(), Options{})
		check(j)
		if n := len(j.Recovery().Lost); n != open {
			t.Errorf("%d lost", n)
		}
	})
}

// A state of which the last parts were not written counts for nothing: neither
// for which requests are open, nor for where the journal begins.
func TestATornState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memStore{}
		j := openMem(t, m, Options{})
		appendLife(j, "A A+ B B+ B-")
		if err := j.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		next := j.Stats().Next
		recs := samples(9 * blockRecords)
		var open []*Record
		for i := range recs {
			if recs[i].Event == Requested {
				recs[i].Request += 1000
				open = append(open, &recs[i])
			}
		}
		w := blockWriter{}
		w.state(next, false, next, len(open), func(i int) *Record { return open[i] })
		parts := w.pairs(nil)
		if len(parts) < 3 {
			t.Fatalf("%d parts", len(parts))
		}
		for n := range parts {
			m := m.clone()
			if err := m.write(parts[:n]); err != nil {
				t.Fatal(err)
			}
			j := openMem(t, m, Options{})
			r := j.Recovery()
			if len(r.Lost) != 1 || r.Lost[0].Request != 1 || len(r.Withdrawn) != 0 || len(r.Damaged) != 0 {
				t.Errorf("with %d parts of %d: %+v", n, len(parts), r)
			}
			if got := events(find(t, j, Filter{})[:5]); !slices.Equal(got, events(life("A A+ B B+ B-"))) {
				t.Errorf("with %d parts of %d: %v", n, len(parts), got)
			}
		}
	})
}
