//go:build race

package main

// parallel is how many tests run at a time.
const parallel = "6"

// times is how often something is repeated that is worth n repetitions: the
// race detector makes each many times slower, and shows what it is there for
// in the first few.
func times(n int) int { return max(n/10, 1) }
