package boottime

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Milliseconds is CLOCK_BOOTTIME in milliseconds.
func Milliseconds() int64 { return shared.now() / 1e6 }

// Nanoseconds is CLOCK_BOOTTIME in nanoseconds, or later by 2 µs at most where the kernel's
// clocks are read without a system call, and by the time of three of these otherwise. In a
// process it never goes back by more than that, and only in the years after 2157 at all.
func Nanoseconds() int64 { return shared.now() }

var shared = clock{read: readBoth, boot: readBoot}

// A clock is CLOCK_BOOTTIME without its system call, which takes seven times as long as
// [time.Now] and would be made several times for each request. CLOCK_BOOTTIME is
// CLOCK_MONOTONIC and the time for which the machine was suspended. Whenever the kernel adds
// to that, it adds as much to CLOCK_REALTIME: so as long as the difference of those that
// time.Now reads is the same, the machine was not suspended; unless somebody has set the
// clock back by just as much, to sameTime, since it was read the last time. (Nor is a
// suspension seen that is shorter than that.) When it is another one the system is called.
type clock struct {
	read  func() (wall, mono int64, ok bool)
	boot  func() int64
	known atomic.Pointer[differences] // nil: nothing is known yet
}

// differences are those of the clocks, in nanoseconds.
type differences struct {
	wall int64 // of CLOCK_REALTIME and CLOCK_MONOTONIC
	boot int64 // of CLOCK_BOOTTIME and CLOCK_MONOTONIC
}

// sameTime is by how much the first of the differences may differ: it is of two readings,
// and a thread may lose its processor between them.
const sameTime = int64(20 * time.Microsecond)

func (c *clock) now() int64 {
	wall, mono, ok := c.read()
	if !ok {
		return c.boot()
	}
	k := c.known.Load()
	if k == nil || wall-mono-k.wall > sameTime || k.wall-(wall-mono) > sameTime {
		if k, mono, ok = c.look(k); !ok {
			return c.boot()
		}
	}
	return mono + k.boot
}

// look finds the differences, after old was found not to be true any more; and what
// CLOCK_MONOTONIC says after that.
func (c *clock) look(old *differences) (k *differences, mono int64, ok bool) {
	k = &differences{}
	var least, most int64
	for try := range 100 { // until the thread has not lost its processor
		// First of all: if the machine is suspended after that, the next reading finds another one.
		wall, before, ok := c.read()
		boot := c.boot()
		_, after, still := c.read()
		if !ok || !still {
			return nil, 0, false
		}
		if try == 0 || after-before < most-least {
			least, most, k.wall = boot-after, boot-before, wall-before
		}
		if mono = after; most-least < closely {
			break
		}
	}
	k.boot = most
	for {
		if old != nil && old.boot >= least { // the machine was not suspended
			k.boot = old.boot
		}
		if c.known.CompareAndSwap(old, k) {
			return k, mono, true
		}
		old = c.known.Load()
	}
}

// closely is how exactly the second of the differences is found. What one process has noted
// another one compares with its own time.
const closely = int64(2 * time.Microsecond)

// start is when the process began, for what time.Time says of CLOCK_MONOTONIC.
var start = time.Now()

// hasBoth reports whether t is of both clocks. After the year 2157 it is of CLOCK_REALTIME
// alone, and so are differences to it.
func hasBoth(t time.Time) bool { return t != t.Round(0) }

var startHasBoth = hasBoth(start)

// readBoth reads CLOCK_REALTIME and CLOCK_MONOTONIC.
func readBoth() (wall, mono int64, ok bool) {
	t := time.Now()
	return t.UnixNano(), int64(t.Sub(start)), startHasBoth && hasBoth(t)
}

func readBoot() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("clock_gettime: %v", err)) // it can't fail on Linux
	}
	return ts.Nano()
}
