package journal

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// TestOpenSet compares the set, of which most is packed, with one that keeps
// records as they are.
func TestOpenSet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	s := newOpenSet()
	want := map[uint64][]Record{}
	begun := uint64(0)
	for seq := uint64(1); seq < 30000; seq++ {
		r := sample(rnd.IntN(1e6), 50)
		r.Seq, r.Time, r.Node = seq, time.Unix(0, rnd.Int64N(1e18)), []locks.NodeID{"me", "she"}[rnd.IntN(2)]
		r.Event = []Event{Requested, Granted, Released, Withdrawn}[rnd.IntN(4)]
		r.Final = rnd.IntN(3) == 0
		if r.Request = 1 + rnd.Uint64N(begun+1); rnd.IntN(2) == 0 || begun == 0 {
			begun++
			r.Request, r.Event, r.Final = begun, Requested, false
		}
		s.apply(&r)

		recs, open := want[r.Request]
		switch {
		case r.ends():
			delete(want, r.Request)
			continue
		case !open && r.Event != Requested && r.Event != Granted:
			continue
		}
		kept := recs[:0:0]
		for _, old := range recs {
			if old.Event != r.Event {
				kept = append(kept, old)
			}
		}
		want[r.Request] = append(kept, r)
	}
	if s.len() != len(want) || len(want) < 4*recentRequests {
		t.Fatalf("%d requests are open, want %d", s.len(), len(want))
	}
	for id := range want {
		got := s.recordsOf(id)
		if len(got) != len(want[id]) {
			t.Fatalf("request %d has %d records, want %d", id, len(got), len(want[id]))
		}
		for i := range got {
			if !reflect.DeepEqual(got[i], want[id][i]) {
				t.Fatalf("request %d: %+v\nwant %+v", id, got[i], want[id][i])
			}
		}
	}
	if packed := len(s.packed.at); packed < len(want)-recentRequests {
		t.Errorf("%d of %d are packed", packed, len(want))
	}
	checkOrder(t, s, want)
	// What has ended leaves nothing behind.
	for id, recs := range want {
		end := recs[0]
		end.Event = Withdrawn
		s.apply(&end)
		if delete(want, id); len(want) == recentRequests/2 {
			break
		}
	}
	for id, recs := range want {
		if !reflect.DeepEqual(s.recordsOf(id), recs) {
			t.Fatalf("request %d: %+v\nwant %+v", id, s.recordsOf(id), recs)
		}
		end := recs[0]
		end.Event = Withdrawn
		s.apply(&end)
	}
	if p := &s.packed; s.len()+len(p.at)+len(p.heads.index) > 0 || len(p.slabs) > 1 {
		t.Errorf("%d requests, %d heads, %d slabs are left of nothing", s.len(), len(p.heads.index), len(p.slabs))
	}
}

// checkOrder compares the records of all requests, and their stories.
func checkOrder(t *testing.T, s *openSet, want map[uint64][]Record) {
	n, record := s.records()
	last := uint64(0)
	for i := range n {
		r := record(i)
		if recs := want[r.Request]; r.Seq <= last || !slices.ContainsFunc(recs, func(x Record) bool { return reflect.DeepEqual(x, *r) }) {
			t.Fatalf("record %d is %+v, behind that of number %d; want one of %+v", i, *r, last, recs)
		}
		last = r.Seq
	}
	begun := uint64(0)
	for recs := range s.stories() {
		if !reflect.DeepEqual(recs, want[recs[0].Request]) || recs[0].Seq <= begun {
			t.Fatalf("%+v, which begins behind %d; want %+v", recs, begun, want[recs[0].Request])
		}
		begun = recs[0].Seq
		n -= len(recs)
	}
	if n != 0 {
		t.Errorf("%d records are in no story", n)
	}
}

// openRecords are two records of each of n requests that stay open, by one program.
func openRecords(n int) []Record {
	recs := make([]Record, 2*n)
	for i := range recs {
		id := uint64(i/2 + 1)
		recs[i] = Record{Seq: uint64(i + 1), Time: time.Unix(1e9, int64(i)), Epoch: 7, Event: Requested, Request: id,
			Key: locks.Key{File: "64769:1234567", Class: locks.Posix}, Path: "home/somebody/project/database.sqlite", Mode: locks.Write,
			Range: locks.Range{Start: id, End: id + 1}, Algorithm: "rw", Node: "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp",
			PID: 4711, Command: "sqlite3", Stamp: locks.Stamp{SN: id, Site: "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"}}
		if i%2 == 1 {
			recs[i].Event, recs[i].Token = Granted, locks.TokenFloor(7)+locks.Token(i)
		}
	}
	return recs
}

// each is how many bytes of memory a set takes for each of the requests of recs.
func each(recs []Record) float64 {
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what was freed while the first one ran
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	s := newOpenSet()
	for i := range recs {
		s.apply(&recs[i])
	}
	took := heap() - before
	runtime.KeepAlive(recs)
	return float64(took) / float64(s.len())
}

// Requests that are open for long take little memory: a program may have 250,000
// locks, and the garbage collector makes who allocates help it with what is there.
func TestOpenRequestIsSmall(t *testing.T) {
	recs := openRecords(100_000)
	got := each(recs)
	if t.Logf("an open request takes %.0f B", got); got > 110 {
		t.Errorf("an open request takes %.0f B, want 110 at most", got)
	}
	for i := range recs {
		recs[i].Key.File = fmt.Sprint("64769:", i/2)
		recs[i].Path = fmt.Sprint("home/somebody/project/file", i/2)
	}
	got = each(recs)
	if t.Logf("one of a file of its own takes %.0f B", got); got > 350 {
		t.Errorf("an open request of a file of its own takes %.0f B, want 350 at most", got)
	}
}

// A request that changes all the time, beside one that stays, does not take more and
// more memory.
func TestAnOpenRequestThatChanges(t *testing.T) {
	s := newOpenSet()
	recs := openRecords(recentRequests + 100) // 100 of them are packed
	for i := range recs {
		s.apply(&recs[i])
	}
	for i := range 100_000 {
		r := recs[2]
		r.Event, r.Seq = Waiting, uint64(len(recs)+i)
		s.apply(&r)
	}
	size := 0
	for _, c := range s.packed.slabs {
		size += cap(c.b)
	}
	if size > 4*slabSize {
		t.Errorf("%d B are kept for %d requests", size, s.len())
	}
	if got := len(s.recordsOf(2)); got != 3 {
		t.Errorf("it has %d records", got)
	}
	if got := s.recordsOf(3); len(got) != 2 || got[0].Seq != 5 {
		t.Errorf("the next one has %v", got)
	}
}

// BenchmarkOpenSet is what it costs to keep requests that stay open.
func BenchmarkOpenSet(b *testing.B) {
	recs := openRecords(250_000)
	for b.Loop() {
		b.ReportMetric(each(recs), "B/request")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(recs)), "ns/record")
}
