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
	if !c.wait(r) {
		c.t.Fatalf("request %d: another reader waits", request)
	}
	c.begin(r, request, false, false)
}

func (c *crew) wantStarted(n int) {
	c.t.Helper()
	if c.started != n {
		c.t.Fatalf("%d readers were started, want %d", c.started, n)
	}
}

func TestOneReaderDoes(t *testing.T) {
	c := newCrew(t, 4)
	r := c.reading()
	for id := uint64(1); id <= 1000; id++ {
		c.take(r, id)
		if on, waited := c.end(r); !on || waited {
			t.Fatalf("request %d: reads on %v, waited %v", id, on, waited)
		}
		c.tick()
	}
	c.wantStarted(0)
}

// A request that waits leaves the reading to another goroutine, once.
func TestHandOver(t *testing.T) {
	c := newCrew(t, 4)
	r := c.reading()
	c.take(r, 1)
	c.handOver(1)
	c.handOver(1)
	c.handOver(7) // long answered
	c.wantStarted(1)
	next := c.reading()
	c.take(next, 2)
	if on, waited := c.end(r); on || !waited {
		t.Fatalf("the one that waited: reads on %v, waited %v", on, waited)
	}
	if on, waited := c.end(next); !on || waited {
		t.Fatalf("the next one: reads on %v, waited %v", on, waited)
	}
	c.wantStarted(1)
}

// Who is slow by experience leaves at once.
func TestLeaveAtTheBegin(t *testing.T) {
	c := newCrew(t, 4)
	r := c.reading()
	c.wait(r)
	c.begin(r, 1, false, true)
	c.wantStarted(1)
	if on, waited := c.end(r); on || waited {
		t.Fatalf("reads on %v, waited %v", on, waited)
	}
}

// Nobody reads while a request takes long that has not said so: another
// goroutine does after two ticks at most, and one of them ends later.
func TestHeldUp(t *testing.T) {
	c := newCrew(t, 4)
	r := c.reading()
	c.tick()
	c.take(r, 1)
	c.tick()
	c.wantStarted(0)
	c.tick()
	c.wantStarted(1)
	c.tick() // it has not begun to run
	next := c.reading()
	for range 10 {
		c.tick()
	}
	c.wantStarted(1)
	if !c.wait(next) {
		t.Fatal("somebody else waits for a request")
	}
	c.tick()
	c.tick()
	c.wantStarted(1)
	if on, _ := c.end(r); !on {
		t.Fatal("the slow one does not read on")
	}
	if c.wait(r) {
		t.Fatal("two wait for a request")
	}
	if !c.stop(r) {
		t.Fatal("the slow one has nothing to do, and does not end")
	}
}

// All that are held up count, not just the first.
func TestManyHeldUp(t *testing.T) {
	c := newCrew(t, 2)
	for id := uint64(1); id <= 50; id++ {
		c.take(c.reading(), id)
		c.tick()
		c.tick()
		c.wantStarted(int(id))
	}
	if n := len(c.underway()); n != 50 {
		t.Errorf("%d requests are under way, want 50", n)
	}
}

// More read when there is always a request ready, but not more than may.
func TestBacklog(t *testing.T) {
	c := newCrew(t, 2)
	r := c.reading()
	for id := uint64(1); id <= 10*backlog; id++ {
		c.wait(r)
		c.begin(r, id, true, false)
		c.end(r)
	}
	c.wantStarted(1)
	other := c.reading()
	if !c.wait(other) {
		t.Fatal("somebody waits")
	}
	c.begin(other, 1e6, false, false)
	if c.stop(r) {
		t.Fatal("one of two ends, although nobody waits for a request")
	}
}
