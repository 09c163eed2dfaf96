package long

import (
	"os"
	"testing"
)

// Env is the environment variable that makes tests run in full, if it is not
// empty.
const Env = "DMXFS_TEST_LONG"

// Tests reports whether tests run in full.
func Tests() bool { return os.Getenv(Env) != "" }

// Or is full if tests run in full, and short otherwise.
func Or[T any](short, full T) T {
	if Tests() {
		return full
	}
	return short
}

// Pure is for tests of code that has a single goroutine, or is simulated with one at a
// time: short with the race detector, which has little to find there and takes ten times
// as long, and full without. .ci/run runs the packages with calls of Pure, OrPure and NoRace
// both ways.
func Pure[T any](short, full T) T {
	if Race {
		return short
	}
	return full
}

// OrPure is [Or] for tests that [Pure] is for: full if tests run in full, without the race
// detector.
func OrPure[T any](short, full T) T { return Pure(short, Or(short, full)) }

// NoRace is for tests as those that [Pure] is for that have no shorter variant, or none that
// is worth its time: it skips t with the race detector.
func NoRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("it has a single goroutine, or one at a time: run without -race")
	}
}
