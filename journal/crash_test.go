package journal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

// childAppend appends for ever to the journal in args[0], bounded to args[1]
// bytes, and tells which records are safe. Request 1 stays open.
func childAppend(args []string) error {
	o := testOptions()
	var err error
	if o.MaxBytes, err = strconv.ParseInt(args[1], 10, 64); err != nil {
		return err
	}
	j, err := Open(args[0], o)
	if err != nil {
		return err
	}
	appendLife(j, "A A+")
	for i := 0; ; i++ {
		r := sample(i, 100)
		r.Request += 100
		j.Append(r)
		if i%1000 == 999 {
			n := j.Stats().Next - 1
			if err := j.Sync(context.Background()); err != nil {
				return err
			}
			fmt.Println("synced", n)
		}
	}
}

// kill -9 at any moment: what Sync promised is there, nothing is missing in
// between, and every request ends once.
func TestKill(t *testing.T) {
	cycles := long.Or(3, 6) * *more
	if testing.Short() {
		cycles = 3
	}
	dir := t.TempDir()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	total := uint64(0)
	for cycle := range cycles {
		// More than what Open below lets it have: so Open deletes each time, not
		// only when the kill comes between a write and the deletion after it.
		c := startChild(t, nil, "append", dir, "5242880")
		safe := ""
		for range 1 + rnd.IntN(150) {
			safe = c.line(t)
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		for c.out.Scan() { // what it had written before it died
			safe = c.out.Text()
		}
		var n uint64
		if _, err := fmt.Sscanf(safe, "synced %d", &n); err != nil {
			t.Fatalf("%q: %v", safe, err)
		}

		o := testOptions()
		o.MaxBytes = 4 << 20
		j, err := Open(dir, o)
		if err != nil {
			t.Fatalf("cycle %d: %v", cycle, err)
		}
		r := j.Recovery()
		if r.Clean || len(r.Damaged) > 0 {
			t.Errorf("cycle %d: clean %v, damaged %v", cycle, r.Clean, r.Damaged)
		}
		// The new writer may be deleting what is too much. A query under way
		// misses that: it can see a request begin and not end.
		if err := j.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		recs := find(t, j, Filter{})
		last := recs[len(recs)-1]
		if last.Seq < n {
			t.Errorf("cycle %d: record %d was safe, the last one is %d", cycle, n, last.Seq)
		}
		for i := range recs[1:] {
			if a, b := recs[i].Seq, recs[i+1].Seq; b != a+1 && a >= j.Stats().First {
				t.Errorf("cycle %d: %d after %d", cycle, b, a)
			}
		}
		open := map[uint64]bool{}
		for _, r := range recs {
			switch {
			case r.Event == Requested && open[r.Request]:
				t.Fatalf("cycle %d: request %d began twice", cycle, r.Request)
			case r.Event == Requested:
				open[r.Request] = true
			case r.ends():
				delete(open, r.Request)
			}
		}
		if len(open) > 0 {
			t.Errorf("cycle %d: open %v", cycle, open)
		}
		total = last.Seq
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d records in %d cycles", total, cycles)
}
