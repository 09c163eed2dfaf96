package boottime

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// It is the clock of that name, in milliseconds.
func TestMilliseconds(t *testing.T) {
	read := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			t.Fatal(err)
		}
		return time.Duration(ts.Nano()).Milliseconds()
	}
	before, now, after := read(), Milliseconds(), read()
	if now < before || now > after+1 { // a microsecond may be another millisecond
		t.Errorf("%d, between %d and %d of clock_gettime", now, before, after)
	}
}

// machine is one whose clocks go on by step at each reading.
type machine struct {
	mono, asleep, set, step int64
	calls                   int // of the system
	broken                  bool
}

func (m *machine) clock() *clock {
	return &clock{
		read: func() (wall, mono int64, ok bool) {
			m.mono += m.step
			return m.mono + m.asleep + m.set, m.mono, !m.broken
		},
		boot: func() int64 {
			m.calls++
			m.mono += m.step
			return m.mono + m.asleep
		},
	}
}

// Whatever happens to the machine, the time is that of CLOCK_BOOTTIME and does not go back;
// and the system is asked for it only when something has happened.
func TestSuspendedAndSet(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := &machine{mono: r.Int64N(1e12), asleep: r.Int64N(1e12), set: r.Int64N(1e18), step: 100}
		c := m.clock()
		last, happened := int64(0), 1
		for range 300 {
			switch r.IntN(20) {
			case 0:
				m.asleep += 2e5 + r.Int64N(1e12)
				happened++
			case 1:
				m.set += r.Int64N(2e12) - 1e12
				happened++
			case 2: // less than can be seen
				m.set += r.Int64N(10) - 5
			default:
				m.mono += r.Int64N(1e10)
			}
			now := c.now()
			if real := m.mono + m.asleep; now < real || now > real+closely {
				t.Fatalf("seed %d: it is %d, and not %d", seed, now, real)
			}
			if now < last {
				t.Fatalf("seed %d: %d after %d", seed, now, last)
			}
			last = now
		}
		if m.calls > happened {
			t.Errorf("seed %d: the system was called %d times, and %d things have happened", seed, m.calls, happened)
		}
	}
}

// It may be suspended, or be set, in the middle of a reading: the next one knows of it.
func TestSuspendedInAReading(t *testing.T) {
	for at := range 12 {
		for _, suspended := range []bool{true, false} {
			m := &machine{mono: 1e9, step: 100}
			c := m.clock()
			c.now()
			read, boot, n := c.read, c.boot, 0
			happens := func() {
				if n++; n == at+1 && suspended {
					m.asleep += 1e9
				} else if n == at+1 {
					m.set -= 1e9
				}
			}
			c.read = func() (int64, int64, bool) { happens(); return read() }
			c.boot = func() int64 { happens(); return boot() }
			m.set += 1e9 // so that it looks
			for range 8 {
				before := m.mono + m.asleep
				if now, real := c.now(), m.mono+m.asleep; now < before || now > real+closely {
					t.Fatalf("%d, suspended %v: it is %d, and not from %d to %d", at, suspended, now, before, real)
				}
			}
		}
	}
}

// A thread that loses its processor while it looks, at any moment, looks again.
func TestLookedAtSlowly(t *testing.T) {
	m := &machine{mono: 1e9, step: 100}
	c := m.clock()
	read, n := c.read, 0
	c.read = func() (int64, int64, bool) {
		if n++; n%7 < 4 {
			m.mono += 1e9
		}
		return read()
	}
	for range 100 {
		m.asleep += 1e9
		if now, real := c.now(), m.mono+m.asleep; now < real || now > real+closely {
			t.Fatalf("it is %d, and not %d", now, real)
		}
	}
}

// Where the other clocks cannot be read, the system is asked each time.
func TestWithoutOtherClocks(t *testing.T) {
	m := &machine{mono: 1e9, asleep: 5, step: 100, broken: true}
	c := m.clock()
	for range 3 {
		if now := c.now(); now != m.mono+m.asleep {
			t.Errorf("it is %d, and not %d", now, m.mono+m.asleep)
		}
	}
	if m.calls != 3 {
		t.Errorf("%d calls", m.calls)
	}
}

// Threads that look at the same time agree, and for none it goes back.
func TestNeverBack(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			last := int64(0)
			for i := range 20_000 {
				if i%1000 == 0 {
					shared.look(shared.known.Load())
				}
				now := Nanoseconds()
				if now < last {
					t.Errorf("%d after %d", now, last)
				}
				last = now
			}
		})
	}
	all.Wait()
	if now, real := Nanoseconds(), readBoot(); now > real+int64(time.Second) || now < real-int64(time.Second) {
		t.Errorf("it is %d, and %d by the system", now, real)
	}
}

// BenchmarkNanoseconds is beside the system call.
func BenchmarkNanoseconds(b *testing.B) {
	b.Run("clock", func(b *testing.B) {
		for b.Loop() {
			Nanoseconds()
		}
	})
	b.Run("system", func(b *testing.B) {
		for b.Loop() {
			readBoot()
		}
	})
}

// A time that is of CLOCK_REALTIME alone is told from one that is of both clocks.
func TestTimesOfOneClock(t *testing.T) {
	if now := time.Now(); !hasBoth(now) || hasBoth(now.Round(0)) || hasBoth(time.Unix(1<<33, 0)) {
		t.Error("a time without CLOCK_MONOTONIC is not known")
	}
	if _, _, ok := readBoth(); ok != startHasBoth {
		t.Error("both clocks are read, and it is not known")
	}
}
