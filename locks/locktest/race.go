//go:build race

package locktest

// race: the race detector is on, and all takes four times as long. Machines
// have no goroutines, so it finds nothing here.
const race = true
