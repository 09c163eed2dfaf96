//go:build race

package systemtest

// underRace: the race detector lets goroutines run in an order of its own.
const underRace = true
