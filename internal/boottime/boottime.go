package boottime

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Milliseconds is CLOCK_BOOTTIME in milliseconds.
func Milliseconds() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("clock_gettime: %v", err)) // it can't fail on Linux
	}
	return ts.Nano() / 1e6
}

// Nanoseconds is CLOCK_BOOTTIME in nanoseconds.
func Nanoseconds() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("clock_gettime: %v", err)) // it can't fail on Linux
	}
	return ts.Nano()
}
