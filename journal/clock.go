package journal

import (
	"time"

	"golang.org/x/sys/unix"
)

// Records are deleted by age, and the wall clock can't be trusted with that: a
// host that comes up in the year 2100 for a minute would lose its history. So a
// journal has a time of its own, its age: the seconds that it saw pass. While a
// daemon runs, the age advances with the time since boot, sleep included. For
// the time between two runs there is only the wall clock to go by, which counts
// for at most maxGap. A block of records carries the age at which it was
// written, and is old when the journal has grown older by MaxAge.
type ageClock struct {
	base uint64               // age at start
	from time.Duration        // of up, at start
	up   func() time.Duration // since some fixed moment; never goes back
}

// maxGap is what the time between two runs counts for at most. Records of a
// host that was off for longer are kept longer.
const maxGap = 24 * time.Hour

// newAgeClock goes on at the age that the last block has, whose newest record
// is from the time last.
func newAgeClock(age uint64, last, now time.Time, up func() time.Duration) ageClock {
	gap := min(max(now.Sub(last), 0), maxGap)
	return ageClock{base: age + uint64(gap/time.Second), from: up(), up: up}
}

// age is the journal's age in seconds.
func (c *ageClock) age() uint64 {
	return c.base + uint64(max(c.up()-c.from, 0)/time.Second)
}

// bootTime is CLOCK_BOOTTIME, which no one can set.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("journal: clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // never fails, clock_gettime(2)
	}
	return time.Duration(ts.Nano())
}
