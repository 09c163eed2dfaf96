package boottime

import (
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
	if now < before || now > after {
		t.Errorf("%d, between %d and %d of clock_gettime", now, before, after)
	}
}
