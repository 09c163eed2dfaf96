package locktest

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// times is how many times as much the larger of two is.
	times = 8
	// growth is how many times as long each of so many may take: all of them may
	// take 2.5 times as long for each time that there is twice as much.
	growth = 2.5 * 2.5 * 2.5 / times
)

// Growth fails if something takes more than 2.5 times as long when there is twice
// as much of it. What make returns for a number is what is measured: eight of n
// each, one after the other, and one of eight times n. So both take about as long,
// and as much memory, and caches that are too small, or that another program uses,
// matter to both.
//
// It is the time of one thread on a processor that is measured, and the best of
// some tries, so that it does not matter what else the machine does. Work that
// grows with the square takes eight times as long for each, every time.
func Growth(t *testing.T, n int, make func(n int) func()) {
	t.Helper()
	growthWithin(t, growth, n, make)
}

// growthWithin is Growth with another limit for each.
func growthWithin(t *testing.T, limit float64, n int, make func(n int) func()) {
	t.Helper()
	few, many, ok := compare(limit,
		func() time.Duration { return onThread(several(n, make)) },
		func() time.Duration { return onThread(make(times * n)) })
	if !ok {
		t.Errorf("%d times %d take %v and %d take %v: more than %.2f times as long", times, n, few, times*n, many, limit)
	}
}

// compare tries until many takes at most limit times as long as few, and returns
// the best of each.
func compare(limit float64, measureFew, measureMany func() time.Duration) (few, many time.Duration, ok bool) {
	const tries = 20 // another program may have the processor's caches for a while
	for try := range tries {
		if took := measureFew(); try == 0 || took < few {
			few = took
		}
		if took := measureMany(); try == 0 || took < many {
			many = took
		}
		if float64(many) <= limit*float64(few) {
			return few, many, true
		}
	}
	return few, many, false
}

// several does what make returns as many times.
func several(n int, make func(n int) func()) func() {
	var fs [times]func()
	for i := range fs {
		fs[i] = make(n)
	}
	return func() {
		for _, f := range fs {
			f()
		}
	}
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
