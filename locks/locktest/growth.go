package locktest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Growth fails if something takes more than two and a half times as long for
// twice the amount. What make returns for an amount is what is measured.
//
// It is the time of one thread on a processor that is measured, and the best of
// some tries, so that it does not matter what else the machine does. Work that
// grows with the square takes four times as long every time.
func Growth(t *testing.T, amount int, make func(n int) func()) {
	t.Helper()
	const tries = 8
	best := [2]time.Duration{}
	for try := range tries {
		for i, n := range [...]int{amount, 2 * amount} {
			if took := onThread(make(n)); try == 0 || took < best[i] {
				best[i] = took
			}
		}
		if limit := 5 * best[0] / 2; best[1] <= limit {
			if try > 0 {
				t.Logf("%d: %v, %d: %v", amount, best[0], 2*amount, best[1])
			}
			return
		}
	}
	t.Errorf("%d take %v and %d take %v: more than 2.5 times as long", amount, best[0], 2*amount, best[1])
}

// onThread is how long f keeps a processor busy. What f starts elsewhere, and
// the collector of garbage, do not count.
func onThread(f func()) time.Duration {
	runtime.GC()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	f()
	return threadTime() - began
}

func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}
