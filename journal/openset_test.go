package journal

import (
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// TestOpenSet compares the set, of which most is packed, with one that keeps
// records as they are.
func TestOpenSet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	s := newOpenSet("me")
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
	if len(s.reqs) != len(want) || len(want) < 4*recentRequests {
		t.Fatalf("%d requests are open, want %d", len(s.reqs), len(want))
	}
	packed := 0
	for id, q := range s.reqs {
		if q.packed != nil {
			packed++
		}
		got := s.recordsOf(q)
		if len(got) != len(want[id]) {
			t.Fatalf("request %d has %d records, want %d", id, len(got), len(want[id]))
		}
		for i := range got {
			if !reflect.DeepEqual(got[i], want[id][i]) {
				t.Fatalf("request %d: %+v\nwant %+v", id, got[i], want[id][i])
			}
		}
	}
	if packed < len(want)-recentRequests {
		t.Errorf("%d of %d are packed", packed, len(want))
	}
	if last := s.records(); len(last) < len(want) || last[0].Seq >= last[len(last)-1].Seq {
		t.Errorf("%d records of %d requests, or not in order", len(last), len(want))
	}
}

// BenchmarkOpenSet is what it costs to keep requests that stay open.
func BenchmarkOpenSet(b *testing.B) {
	recs := make([]Record, 2*250_000)
	for i := range recs {
		id := uint64(i/2 + 1)
		recs[i] = Record{Seq: uint64(i + 1), Time: time.Unix(1e9, int64(i)), Epoch: 7, Event: Requested, Request: id,
			Key: locks.Key{File: "64769:1234567", Class: locks.Posix}, Path: "home/somebody/project/database.sqlite", Mode: locks.Write,
			Range: locks.Range{Start: id, End: id + 1}, Algorithm: "rw", Node: "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp",
			PID: 4711, Command: "sqlite3", Stamp: locks.Stamp{SN: id, Site: "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"}}
		if i%2 == 1 {
			recs[i].Event = Granted
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		s := newOpenSet(recs[0].Node)
		for i := range recs {
			s.apply(&recs[i])
		}
		b.ReportMetric(float64(heap()-before)/float64(len(s.reqs)), "B/request")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(recs)), "ns/record")
}
