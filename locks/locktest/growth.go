package locktest

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// times is how many times as much the larger of two is.
const times = 8

// Growth fails if something takes more than three times as long for each element
// when there are eight times as many. What make returns for a number is what is
// measured.
//
// It is the time of one thread on a processor that is measured, and the best of
// some tries, so that it does not matter what else the machine does. Caches that
// are too small for more make it grow a little, and work that grows with the
// square takes eight times as long for each, every time.
func Growth(t *testing.T, n int, make func(n int) func()) {
	t.Helper()
	growthWithin(t, 3, n, make)
}

// growthWithin is Growth with another limit than three times.
func growthWithin(t *testing.T, most, n int, make func(n int) func()) {
	t.Helper()
	const tries = 20 // another program may have the caches for a while
	limit := times * most
	var few, many time.Duration
	for try := range tries {
		if took := onThread(make(n)); try == 0 || took < few {
			few = took
		}
		if took := onThread(make(times * n)); try == 0 || took < many {
			many = took
		}
		if many <= time.Duration(limit)*few {
			return
		}
	}
	t.Errorf("%d take %v and %d take %v: more than %d times as long", n, few, times*n, many, limit)
}

// onThread is how long f keeps a processor busy. What f starts elsewhere, and
// the collector of garbage, which would have the thread help it, do not count.
func onThread(f func()) time.Duration {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := ThreadTime()
	f()
	return ThreadTime() - began
}

// ThreadTime is how long the calling thread has had a processor.
func ThreadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}
