//go:build !race

package main

import "github.com/dmxfs/dmxfs/internal/long"

// parallel is how many tests run at a time.
const parallel = "16"

// times is how often something is repeated that is worth n repetitions.
func times(n int) int { return long.Or(max(n/20, 1), n) }
