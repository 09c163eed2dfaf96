package fusefs

import (
	"testing"
)

// crew is readers whose goroutines are played by the test.
type crew struct {
	*readers
	t       *testing.T
	started int
}

func newCrew(t *testing.T, most int) *crew {
	c := &crew{readers: newReaders(most), t: t}
	c.start = func() { c.started++ }
	return c
}

// take is a reader that waits for a request, and gets it.
func (c *crew) take(r *reader, request uint64) {
	c.t.Helper()
	c.waits(r)
	c.begin(r, request, false, false)
}

func (c *crew) waits(r *reader) {
	c.t.Helper()
	if !c.wait(r) {
		c.t.Fatal("enough others wait for a request")
	}
}

func (c *crew) wantStarted(n int) {
	c.t.Helper()
	if c.started != n {
		c.t.Fatalf("%d readers were started, want %d", c.started, n)
	}
}

func (c *crew) wantEnd(r *reader, on, waited bool) {
	c.t.Helper()
	if o, w := c.end(r); o != on || w != waited {
		c.t.Fatalf("it reads on: %v, and waited: %v; want %v, %v", o, w, on, waited)
	}
}

// pair is the usual two, of which the first one answers request 1, and the
// second one waits.
func (c *crew) pair() (a, b *reader) {
	c.t.Helper()
	a = c.reading()
	c.take(a, 1)
	c.wantStarted(0) // a program waits for that answer
	c.wantEnd(a, true, false)
	c.wantStarted(1)
	b = c.reading()
	c.waits(b)
	c.take(a, 1)
	return a, b
}

func TestTwoReadersTakeTurns(t *testing.T) {
	c := newCrew(t, 4)
	a, b := c.pair()
	for id := uint64(2); id <= 1000; id++ {
		c.wantEnd(a, true, false)
		c.waits(a)
		c.begin(b, id, false, false)
		c.tick()
		a, b = b, a
	}
	c.wantStarted(1)
}

// Who waits leaves the reading to others, once; and there are two again as
// soon as a request is answered and nobody waits for the next one.
func TestHandOver(t *testing.T) {
	c := newCrew(t, 4)
	a, b := c.pair()
	c.willWait(1)
	c.willWait(1)
	c.willWait(7) // long answered
	c.wantStarted(1)
	c.begin(b, 2, false, false)
	c.wantStarted(1) // perhaps somebody waits for this unlock
	c.willWait(2)
	c.wantStarted(2)
	d := c.reading()
	c.take(d, 3)
	c.wantEnd(a, false, true)
	c.wantEnd(b, false, true)
	c.wantStarted(2)
	c.wantEnd(d, true, false)
	c.wantStarted(3)
	c.waits(d)
	c.begin(d, 4, false, false)
	c.wantEnd(d, true, false)
	c.wantStarted(3) // that one has not begun to run
}

// Who has waited for long and reads on is the second one: nobody is started.
func TestHandOverWithinOneHost(t *testing.T) {
	c := newCrew(t, 4)
	a, b := c.pair()
	c.willWait(1)
	for range long {
		c.tick()
	}
	c.begin(b, 2, false, false) // unlocks what request 1 waits for
	c.wantEnd(a, true, true)
	c.wantEnd(b, true, false)
	c.wantStarted(1)
}

// Who is slow by experience leaves at once.
func TestLeaveAtTheBegin(t *testing.T) {
	c := newCrew(t, 4)
	a := c.reading()
	c.waits(a)
	c.begin(a, 1, false, true)
	c.wantStarted(1)
	c.wantEnd(a, false, false)
}

// Nobody reads while both take long that have not said so: another one does
// after two ticks at most, and ends when there are too many.
func TestHeldUp(t *testing.T) {
	c := newCrew(t, 4)
	a, b := c.pair()
	c.begin(b, 2, false, false)
	c.tick()
	c.wantStarted(1)
	c.tick()
	c.wantStarted(2)
	c.tick() // it has not begun to run
	d := c.reading()
	c.waits(d)
	for range 10 {
		c.tick()
	}
	c.wantStarted(2)
	c.wantEnd(a, true, false)
	c.waits(a)
	c.wantEnd(b, true, false)
	if c.wait(b) {
		t.Fatal("three wait for a request")
	}
}

// All that are held up count, not just the first.
func TestManyHeldUp(t *testing.T) {
	c := newCrew(t, 2)
	a, b := c.pair()
	c.begin(b, 2, false, false)
	for id := uint64(3); id <= 50; id++ {
		c.tick()
		c.tick()
		c.wantStarted(int(id) - 1)
		c.take(c.reading(), id)
	}
	if n := len(c.underway()); n != 50 {
		t.Errorf("%d requests are under way, want 50", n)
	}
	c.wantEnd(a, true, false)
}

// More read when there is always a request ready, but not more than may.
func TestBacklog(t *testing.T) {
	c := newCrew(t, 3)
	a, b := c.pair()
	c.begin(b, 2, true, false)
	for id := uint64(3); id <= 10*backlog; id++ {
		c.end(a)
		c.waits(a)
		c.begin(a, id, true, false)
	}
	c.wantStarted(2)
}

// Who has waited for long reads on, if there is only one other who does.
func TestReadingOnAfterALongWait(t *testing.T) {
	for _, x := range []struct {
		ticks int
		third bool
		on    bool
	}{
		{ticks: long - 1}, {ticks: long, on: true}, {ticks: 1000, on: true}, {ticks: long, third: true},
	} {
		c := newCrew(t, 4)
		a, b := c.pair()
		c.willWait(1)
		if x.third {
			c.begin(b, 2, false, false)
			c.wantEnd(b, true, false)
			c.wantStarted(2)
			c.waits(c.reading())
			c.waits(b)
		}
		for range x.ticks {
			c.tick()
		}
		c.wantEnd(a, x.on, true)
	}
}

// As many requests wait for the storage as programs make, one more is read
// meanwhile, and when all are answered there are two who read.
func TestReadersBehindTheStorage(t *testing.T) {
	c := newCrew(t, 2)
	all := []*reader{c.reading()}
	const n = 16
	for id := uint64(1); id <= n; id++ {
		r := all[id-1]
		c.take(r, id)
		c.wantStarted(int(id) - 1)
		c.block(id)
		c.block(id)
		c.wantStarted(int(id))
		all = append(all, c.reading())
	}
	c.waits(all[n])
	for range 10 {
		c.tick()
	}
	c.wantStarted(n)
	for i, r := range all[:n] {
		c.wantEnd(r, true, true)
		if on := c.wait(r); on != (i == 0) {
			t.Fatalf("number %d reads on: %v", i, on)
		}
	}
	if c.blocked != 0 || len(c.active) != usualReaders {
		t.Fatalf("%d are blocked, %d active", c.blocked, len(c.active))
	}
}

// Nobody is started for one program that makes one call after the other.
func TestOneBehindTheStorage(t *testing.T) {
	c := newCrew(t, 4)
	a, b := c.pair()
	for id := uint64(1); id <= 100; id++ {
		c.block(id)
		c.wantEnd(a, true, true)
		c.waits(a)
		c.begin(b, id+1, false, false)
		a, b = b, a
	}
	c.wantStarted(1)
}

// A request that waits for the storage and then for another node leaves, and so
// does not count twice; and those that are over the bound are found by the ticks.
func TestManyBehindTheStorage(t *testing.T) {
	c := newCrew(t, 2)
	r := c.reading()
	for id := uint64(1); id <= mostBlocked; id++ {
		c.take(r, id)
		c.block(id)
		r = c.reading()
	}
	c.take(r, mostBlocked+1)
	started := c.started
	c.block(mostBlocked + 1)
	c.willWait(1)
	if c.blocked != mostBlocked-1 {
		t.Fatalf("%d are blocked, want %d", c.blocked, mostBlocked-1)
	}
	c.wantStarted(started)
	next := c.reading() // was started when the last one began
	c.take(next, mostBlocked+2)
	started = c.started
	c.block(mostBlocked + 1)
	c.block(mostBlocked + 2)
	if c.blocked != mostBlocked {
		t.Fatalf("%d are blocked, want %d", c.blocked, mostBlocked)
	}
	if c.started > started+1 {
		t.Fatalf("%d more were started", c.started-started)
	}
	c.wantEnd(next, true, true) // it has waited all the same, and says nothing of how long such requests take
}
