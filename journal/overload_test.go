package journal

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// gate is a store whose writes fail or hang while it is shut.
type gate struct {
	memStore
	fail atomic.Bool
	hang atomic.Pointer[chan struct{}]
}

func newGate() *gate {
	g := &gate{}
	g.hook = func(op string) (error, bool) {
		if op == "write" {
			if c := g.hang.Load(); c != nil {
				<-*c
			}
			if g.fail.Load() {
				return errDisk, false
			}
		}
		return nil, false
	}
	return g
}

func (g *gate) shut() (open func()) {
	c := make(chan struct{})
	g.hang.Store(&c)
	return func() { g.hang.Store(nil); close(c) }
}

// While the disk refuses writes, nothing waits, memory is bounded, and what
// does not fit is counted, noted, and leaves no request open.
func TestWhatDoesNotFitIsDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		j, err := openStore(g, Options{Node: "n1", limit: 300})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		appendLife(j, "A A+ B C C?") // stored, and open
		if err := j.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		g.fail.Store(true)
		j.Append(Record{Event: Note})
		time.Sleep(DefaultDelay)
		synctest.Wait()
		if !errors.Is(j.Healthy(), errDisk) {
			t.Fatal(j.Healthy())
		}
		start := time.Now()
		for i := range 1000 {
			r := sample(i, 10)
			r.Request += 100
			j.Append(r)
		}
		appendLife(j, "A- B- C~ D D+ D-") // dropped, too
		if d := time.Since(start); d != 0 {
			t.Errorf("to append took %v", d)
		}
		s := j.Stats()
		if s.Pending != 300 || s.Dropped != 1+1000+6-300 {
			t.Errorf("%+v", s)
		}
		if n := len(find(t, j, Filter{})); n != 5+300 {
			t.Errorf("%d records can be read", n)
		}
		if err := j.Sync(context.Background()); !errors.Is(err, errDisk) {
			t.Errorf("Sync: %v", err)
		}

		g.fail.Store(false)
		time.Sleep(retryEvery)
		if err := j.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := j.Healthy(); err != nil {
			t.Error(err)
		}
		recs := find(t, j, Filter{After: 305})
		note := recs[len(recs)-1]
		if note.Event != Note || !strings.Contains(note.Reason, "707 records from 306 to 1012") {
			t.Errorf("%+v", note)
		}
		ended := map[uint64]Event{}
		for _, r := range recs[:len(recs)-1] {
			ended[r.Request] = r.Event
			if !strings.Contains(r.Reason, "dropped") {
				t.Errorf("%+v", r)
			}
		}
		// 200 is the one of the loop whose release was the first to be dropped.
		if len(ended) != 3 || ended[1] != Released || ended[2] != Withdrawn || ended[200] != Released {
			t.Errorf("ended %v", ended)
		}
		if s := j.Stats(); s.Pending != 0 || s.Dropped != 707 {
			t.Errorf("%+v", s)
		}

		// Only C is still open, and the gap is no damage.
		if err := j.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		j2 := openMem(t, g.clone(), Options{})
		if r := j2.Recovery(); len(r.Damaged) != 0 || len(r.Lost) != 0 || len(r.Withdrawn) != 1 || r.Withdrawn[0].Request != 3 {
			t.Errorf("%+v", r)
		}
	})
}

// A disk that hangs does not stop the callers for long, and is reported.
func TestADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		j, err := openStore(g, Options{Node: "n1", limit: 300})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		open := g.shut()
		for i := range 300 {
			j.Append(sample(i, 10))
		}
		synctest.Wait()
		start := time.Now()
		var took []time.Duration
		for i := range 5 {
			before := time.Now()
			j.Append(sample(i, 10))
			if d := time.Since(before); d != 0 {
				t.Errorf("an append took %v", d)
			}
			j.Pace(false)
			took = append(took, time.Since(before))
		}
		if took[0] != roomWait || time.Since(start) != roomWait {
			t.Errorf("appends and paces took %v", took)
		}
		if err := j.Healthy(); err != nil {
			t.Errorf("unhealthy after %v: %v", time.Since(start), err)
		}
		time.Sleep(stallAfter)
		synctest.Wait()
		if err := j.Healthy(); err == nil || !strings.Contains(err.Error(), "not answered") {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := j.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Sync: %v", err)
		}
		open()
		if err := j.Sync(context.Background()); err != nil {
			t.Error(err)
		}
		if err := j.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

// A writer that goes on, but slowly, slows its callers down, and drops nothing.
func TestASlowDiskSlowsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memStore{}
		m.hook = func(op string) (error, bool) {
			if op == "write" {
				time.Sleep(roomWait / 2)
			}
			return nil, false
		}
		j := openMem(t, m, Options{limit: 2 * chunkRecords})
		start := time.Now()
		for i := range 20 * chunkRecords {
			j.Pace(false)
			j.Append(sample(i, 10))
		}
		if err := j.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		if s := j.Stats(); s.Dropped != 0 || time.Since(start) < roomWait {
			t.Errorf("%+v in %v", s, time.Since(start))
		}
	})
}

// Whatever the writer does, nobody waits for more than a second.
func TestAPaceDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := buffer{next: 1, limit: 1, wake: make(chan struct{}, 1), due: stopped()}
		took := func(f func()) time.Duration {
			start := time.Now()
			f()
			return time.Since(start)
		}
		note := func() { b.append(&Record{Event: Note}) }
		if d := took(func() { b.pace(false) }); d != 0 {
			t.Errorf("waited %v for an empty buffer", d)
		}
		note()
		stop := make(chan struct{})
		go func() { // others are always faster
			for {
				select {
				case <-stop:
					return
				case <-time.After(roomWait / 2):
					b.mu.Lock()
					b.release()
					b.mu.Unlock()
				}
			}
		}()
		if d := took(func() { b.pace(false) }); d != roomWaits*roomWait/2 {
			t.Errorf("waited %v", d)
		}
		close(stop)
		if d := took(note); d != 0 || b.drops.n != 1 {
			t.Errorf("appended in %v, dropped %d", d, b.drops.n)
		}

		// After a stall, others wait again when something was stored since.
		if d := took(func() { b.pace(false); b.pace(false) }); d != roomWait { // in vain, and not at all
			t.Errorf("waited %v", d)
		}
		b.take(1)
		b.done()
		note()
		go func() {
			time.Sleep(roomWait / 2)
			b.take(1)
			b.done()
		}()
		if d := took(func() { b.pace(false) }); d != roomWait/2 {
			t.Errorf("waited %v", d)
		}
	})
}

// Who has much to append leaves room for those who have little.
func TestWhoAppendsMuchWaitsSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := buffer{next: 1, limit: 100, wake: make(chan struct{}, 1), due: stopped()}
		for i := range 60 {
			start := time.Now()
			b.pace(false)
			if d := time.Since(start); d != 0 {
				t.Fatalf("with %d records, who has little waited %v", i, d)
			}
			b.append(&Record{Event: Note})
		}
		start := time.Now()
		b.pace(true)
		if time.Since(start) == 0 {
			t.Error("who has much did not wait")
		}
	})
}

func TestCloseOnADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		j, err := openStore(g, Options{})
		if err != nil {
			t.Fatal(err)
		}
		j.Append(Record{Event: Note})
		open := g.shut()
		synctest.Wait()
		start := time.Now()
		if err := j.Close(); err == nil || time.Since(start) != closeWait {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		open()
		<-j.stopped
	})
}

func TestCloseOnADiskThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		j, err := openStore(g, Options{})
		if err != nil {
			t.Fatal(err)
		}
		g.fail.Store(true)
		appendLife(j, "A B C")
		err = j.Close()
		if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "3 records") {
			t.Error(err)
		}
		if again := j.Close(); again != err {
			t.Errorf("the second Close: %v", again)
		}
		j.Append(Record{Event: Note}) // as after any Close: dropped, without a panic
		if err := j.Sync(context.Background()); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}
