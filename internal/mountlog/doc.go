// Package mountlog is the log of a mount: where it goes, that nobody who logs waits for
// it, and what the Go runtime says of a process that crashes.
//
// Both processes of a mount log by it. It knows settings, and nothing of what is logged.
package mountlog
