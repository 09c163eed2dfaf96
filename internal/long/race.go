//go:build race

package long

// Race reports whether the race detector is on.
const Race = true
