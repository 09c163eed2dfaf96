//go:build !race

package main

import "dmxfs/internal/long"

// times is how often something is repeated that is worth n repetitions.
func times(n int) int { return long.Or(max(n/10, 1), n) }
