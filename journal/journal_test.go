package journal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// openMem opens a journal on m. The journal is closed with the test.
func openMem(t testing.TB, m *memStore, o Options) *Journal {
	t.Helper()
	if o.Node == "" {
		o.Node = "n1"
	}
	j, err := openStore(m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// find returns the records that pass the filter.
func find(t testing.TB, j *Journal, f Filter) []Record {
	t.Helper()
	var recs []Record
	scan(t, j, f, func(r Record) { recs = append(recs, r) })
	return recs
}

// scan is find for very many: it keeps none.
func scan(t testing.TB, j *Journal, f Filter, do func(Record)) {
	t.Helper()
	last := uint64(0)
	if err := j.Query(context.Background(), f, func(r Record) error {
		if last >= r.Seq {
			t.Errorf("record %d after %d", r.Seq, last)
		}
		last = r.Seq
		do(r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// seqs are the numbers of records.
func seqs(recs []Record) []uint64 {
	var n []uint64
	for _, r := range recs {
		n = append(n, r.Seq)
	}
	return n
}

// events are "event request" of records.
func events(recs []Record) []string {
	var s []string
	for _, r := range recs {
		e := r.Event.String()
		if r.Request != 0 {
			e += " " + string(rune('A'+r.Request-1))
		}
		s = append(s, e)
	}
	return s
}

func TestRecordsAreReadBackAtOnceAndAfterTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memStore{}
		j := openMem(t, m, Options{})
		want := samples(300)
		for _, r := range want {
			r.Seq, r.Node = 0, ""
			j.Append(r)
		}
		if n := len(m.pairs); n != 0 {
			t.Fatalf("%d blocks are written already", n)
		}
		check := func() {
			t.Helper()
			if got := find(t, j, Filter{}); !slices.EqualFunc(got, want, same) {
				t.Errorf("%d records of %d, or others", len(got), len(want))
			}
		}
		check()
		time.Sleep(DefaultDelay)
		synctest.Wait()
		if j.Stats().Pending != 0 {
			t.Error("not written after the delay")
		}
		check()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = openMem(t, m, Options{})
		check()
		if r := j.Recovery(); !r.Clean || len(r.Damaged) != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// A journal with nothing to do does nothing: it does not wake the host up.
func TestRecordsAreGatheredAndSyncedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memStore{}
		var mu sync.Mutex
		var log []string
		start := time.Now()
		m.hook = func(op string) (error, bool) {
			mu.Lock()
			defer mu.Unlock()
			if op != "room" {
				log = append(log, op+" "+time.Since(start).String())
			}
			return nil, false
		}
		j := openMem(t, m, Options{MaxAge: 1000 * time.Hour})
		at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(log, want) {
				t.Errorf("got %q, want %q", log, want)
			}
			log = nil
		}
		for i := range 6 { // soon one after the other: one write
			j.Append(sample(i, 2))
			time.Sleep(500 * time.Microsecond)
		}
		at(time.Second)
		expect("write 50ms")
		at(50 * time.Minute)
		expect("sync 1.05s")

		// A rare event does not wait.
		j.Append(sample(6, 2))
		j.Append(Record{Event: Lost, Request: 3})
		at(51 * time.Minute)
		expect("write 50m0s", "sync 50m0s")

		if err := j.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		expect("sync 51m0s")
	})
}

func TestAppendFillsInWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openMem(t, &memStore{}, Options{Node: "me"})
		j.Append(Record{Event: Note})
		j.Append(Record{Event: Note, Node: "other", Time: time.Unix(5, 6)})
		got := find(t, j, Filter{})
		if got[0].Node != "me" || !got[0].Time.Equal(time.Now()) || got[0].Seq != 1 {
			t.Errorf("%+v", got[0])
		}
		if got[1].Node != "other" || !got[1].Time.Equal(time.Unix(5, 6)) || got[1].Seq != 2 {
			t.Errorf("%+v", got[1])
		}
	})
}

// life are the records of requests, in short: "A" asks for A, "A+" is its
// grant, "A-" its final release, "A~" a release of a part, "A?" that it waits,
// "A!" that it is denied, "A<" that it is withdrawn, "A#" that it is lost.
func life(s string) []Record {
	var recs []Record
	for _, w := range strings.Fields(s) {
		r := Record{
			Event: Requested, Request: uint64(w[0]-'A') + 1, Path: strings.ToLower(w[:1]),
			Key: locks.Key{File: "f" + w[:1], Class: locks.Flock}, Mode: locks.Write,
			Range: locks.Whole, Epoch: 3, PID: int(w[0]), Command: "prog" + w[:1],
		}
		switch w[1:] {
		case "+":
			r.Event = Granted
		case "-":
			r.Event, r.Final = Released, true
		case "~":
			r.Event = Released
		case "?":
			r.Event = Waiting
		case "!":
			r.Event = Denied
		case "<":
			r.Event = Withdrawn
		case "#":
			r.Event = Lost
		}
		recs = append(recs, r)
	}
	return recs
}

func appendLife(j *Journal, s string) {
	for _, r := range life(s) {
		j.Append(r)
	}
}

// What a run leaves open, the next one closes, once.
func TestTheNextRunClosesWhatWasLeftOpen(t *testing.T) {
	for _, c := range []struct{ name, life, lost, withdrawn string }{
		{"nothing", "", "", ""},
		{"all ended", "A A+ A- B B! C C? C< D D+ D#", "", ""},
		{"asked", "A", "", "A"},
		{"waiting", "A A? A?", "", "A"},
		{"held", "A A+", "A", ""},
		{"held in part", "A A+ A~ A~", "A", ""},
		{"the grant alone is known", "A+", "A", ""},
		{"many", "A B A+ C C? D D+ B+ D- E E!", "A B", "C"},
		{"a late step does not open", "A A! A? A~", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &memStore{}
				if err := openMem(t, m, Options{}).Close(); err != nil { // a run that ended in order
					t.Fatal(err)
				}
				j := openMem(t, m, Options{})
				appendLife(j, c.life)
				if err := j.Sync(context.Background()); err != nil {
					t.Fatal(err)
				}
				n := len(find(t, j, Filter{}))

				crashed := m.clone()
				j = openMem(t, crashed, Options{Node: "n1b"})
				r := j.Recovery()
				ids := func(recs []Record) string {
					var s []string
					for _, r := range recs {
						s = append(s, string(rune('A'+r.Request-1)))
					}
					return strings.Join(s, " ")
				}
				if r.Clean != (n == 0) || ids(r.Lost) != c.lost || ids(r.Withdrawn) != c.withdrawn {
					t.Errorf("clean %v, lost %q, withdrawn %q", r.Clean, ids(r.Lost), ids(r.Withdrawn))
				}
				for _, l := range r.Lost {
					if l.Event != Lost || l.Path == "" || l.PID == 0 || l.Command == "" || l.Node != "n1" || l.Epoch != 3 ||
						l.Reason != reasonLost {
						t.Errorf("%+v", l)
					}
				}
				all := find(t, j, Filter{})[n:]
				want := len(r.Lost) + len(r.Withdrawn)
				if n > 0 {
					want++ // recovered
				}
				if len(all) != want {
					t.Errorf("added %v", events(all))
				}
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				j = openMem(t, crashed, Options{})
				if r := j.Recovery(); !r.Clean || len(r.Lost)+len(r.Withdrawn) != 0 {
					t.Errorf("once more: %+v", r)
				}
				if again := find(t, j, Filter{})[n:]; len(again) != want {
					t.Errorf("once more: %v", events(again))
				}
			})
		})
	}
}

// Wherever the daemon stops, after each single write, the next run finds a
// prefix of the history, and ends each request that it began exactly once.
func TestACrashAfterAnyWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memStore{}
		var states [][]pair
		keep := func() { states = append(states, slices.Clone(m.pairs)) }
		m.hook = func(op string) (error, bool) {
			if op == "write" || op == "drop" {
				keep() // as it was before
			}
			return nil, false
		}
		// Small, so that it deletes and writes states.
		j := openMem(t, m, Options{})
		j.opt.MaxBytes = 6000
		j.idx.grain = 500
		appendLife(j, "Z Z+") // stays open
		for i := range 600 {
			r := sample(i, 7)
			r.Request += 100
			j.Append(r)
			if i%10 == 9 {
				time.Sleep(DefaultDelay)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		keep()
		first := uint64(0)
		for i, pairs := range states {
			for round := range 2 { // the second run crashes at once, too
				crashed := &memStore{pairs: slices.Clone(pairs)}
				j := openMem(t, crashed, Options{})
				if err := j.Sync(context.Background()); err != nil {
					t.Fatal(err)
				}
				if d := j.Recovery().Damaged; len(d) > 0 {
					t.Fatalf("state %d: %v", i, d)
				}
				if e := j.idx.extents; len(e) > 0 && e[0].first < j.idx.floor {
					t.Fatalf("state %d: counts blocks from %d, the journal begins at %d", i, e[0].first, j.idx.floor)
				}
				checkEnds(t, find(t, j, Filter{}), i)
				first = max(first, j.Stats().First)
				if round == 0 {
					pairs = slices.Clone(crashed.pairs)
				} else if n := len(j.Recovery().Lost); n > 0 {
					t.Fatalf("state %d: the second run lost %d more", i, n)
				}
			}
		}
		if first < 300 {
			t.Errorf("the test did not delete: begins at %d", first)
		}
	})
}

// checkEnds checks that every request has one beginning and one end.
func checkEnds(t *testing.T, recs []Record, state int) {
	t.Helper()
	began, ended := map[uint64]int{}, map[uint64]int{}
	firstWhole := uint64(0)
	for _, r := range recs {
		if r.Request == 0 {
			continue
		}
		if r.Event == Requested {
			began[r.Request]++
			if firstWhole == 0 && r.Request > 100 {
				firstWhole = r.Request
			}
		}
		if r.ends() {
			ended[r.Request]++
			if began[r.Request] != 1 && r.Request >= firstWhole && firstWhole > 0 {
				t.Fatalf("state %d: request %d ends but began %d times", state, r.Request, began[r.Request])
			}
		}
	}
	for id, n := range began {
		if n != 1 || ended[id] != 1 {
			t.Fatalf("state %d: request %d began %d times and ended %d times", state, id, n, ended[id])
		}
	}
}

var errDisk = errors.New("disk on fire")

// Every write, sync and delete can fail, and have been done nonetheless. The
// journal goes on, and in the end nothing is lost or there twice.
func TestFaultsOfTheDisk(t *testing.T) {
	for _, op := range []string{"room", "write", "sync", "drop"} {
		for _, stored := range []bool{false, true} {
			for nth := range 12 {
				name := op + " lost"
				if stored {
					name = op + " stored"
				}
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testFault(t, op, nth, stored) })
				})
			}
		}
	}
}

func testFault(t *testing.T, op string, nth int, stored bool) {
	m := &memStore{}
	n, failed := 0, false
	m.hook = func(o string) (error, bool) {
		if o != op {
			return nil, false
		}
		if n++; n-1 == nth {
			failed = true
			return errDisk, stored
		}
		return nil, false
	}
	j := openMem(t, m, Options{})
	j.opt.MaxBytes, j.idx.grain = 3000, 300
	appendLife(j, "Z Z+")
	const count = 300
	sick := false
	for i := range count {
		r := sample(i, 7)
		r.Request += 100
		j.Append(r)
		if i%10 == 9 {
			time.Sleep(DefaultDelay)
			synctest.Wait()
			if err := j.Healthy(); err != nil {
				sick = true
				if !errors.Is(err, errDisk) {
					t.Error(err)
				}
			}
		}
		if i == count/2 {
			_ = j.Sync(context.Background()) // may be the one that fails
		}
	}
	time.Sleep(2 * retryEvery)
	synctest.Wait()
	if err := j.Healthy(); err != nil {
		t.Errorf("not healthy again: %v", err)
	}
	if s := j.Stats(); s.Pending != 0 || s.Dropped != 0 || s.Next != count+3 {
		t.Errorf("%+v", s)
	}
	if failed && !sick && op != "drop" && op != "sync" {
		t.Error("it failed, but was healthy all the time")
	}
	live := find(t, j, Filter{})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = openMem(t, m.clone(), Options{})
	after := find(t, j, Filter{})
	if d := j.Recovery().Damaged; len(d) > 0 {
		t.Error(d)
	}
	// The two of Z, then all from some record on.
	for _, recs := range [][]Record{live, after} {
		if got := events(recs[:2]); !slices.Equal(got, []string{"requested Z", "granted Z"}) {
			t.Fatalf("begins with %v", got)
		}
		for i, r := range recs[3:] {
			if r.Seq != recs[2].Seq+uint64(i)+1 {
				t.Fatalf("%d after %d", r.Seq, recs[2].Seq+uint64(i))
			}
		}
	}
	if last := live[len(live)-1].Seq; last != count+2 {
		t.Errorf("ends with %d", last)
	}
	if last := after[len(after)-1]; last.Event != Recovered || last.Seq != count+4 {
		t.Errorf("ends with %+v", last)
	}
}

// A process that goes on with what the last one held calls nothing of it lost.
func TestWhatGoesOnIsNotLost(t *testing.T) {
	m := &memStore{}
	j := openMem(t, m, Options{})
	appendLife(j, "A A+ B B? C C+")
	syncNow(t, j)
	j = openMem(t, m.clone(), Options{GoesOn: true})
	if r := j.Recovery(); len(r.Lost)+len(r.Withdrawn) > 0 {
		t.Errorf("lost: %v", r)
	}
	// If that one was killed the end of something may not be written.
	after := openMem(t, m.clone(), Options{GoesOn: true, Resumed: func(r uint64) bool { return r == 1 }})
	syncNow(t, after)
	if got := events(find(t, after, Filter{Events: []Event{Lost, Withdrawn, Released, Recovered}})); !slices.Equal(got, []string{"withdrawn B", "released C"}) {
		t.Errorf("what does not go on: %v", got)
	}
	j.Append(Record{Event: Upgraded, Reason: "of the test"})
	j.Append(Record{Event: Resumed, Request: 1})
	appendLife(j, "B+ A-")
	syncNow(t, j)
	if got := events(find(t, j, Filter{Events: []Event{Lost, Withdrawn, Recovered}})); len(got) > 0 {
		t.Errorf("there are %v", got)
	}
	// What it does not end is lost with it.
	j = openMem(t, j.st.(*memStore).clone(), Options{})
	if got := events(j.Recovery().Lost); !slices.Equal(got, []string{"lost C", "lost B"}) && !slices.Equal(got, []string{"lost B", "lost C"}) {
		t.Errorf("after its end: %v", got)
	}
}
