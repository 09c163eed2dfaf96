//go:build !linux || !amd64

package sigbus

// Guard does nothing here.
func Guard() error { return nil }

// Faults is 0: a fault ends the process.
func Faults() uint64 { return 0 }
