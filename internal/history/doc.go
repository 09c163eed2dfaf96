// Package history is the journal of a daemon whose disk may be full or fail when it
// starts: then what happens is in memory, and gets to the disk when that takes it. Who
// loses a local disk loses no locks.
//
// The daemon writes it. It knows the journal, and nothing of what its records are about.
package history
