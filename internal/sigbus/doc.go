// Package sigbus lets a process go on after a page of a mapped file could not be
// had. Linux sends SIGBUS when the disk is full as a page of a hole is written to,
// fails as one is read, or the file has become shorter; the Go runtime then ends the
// process, since the goroutine that has met it, of some library, will not recover.
//
// Where this is known how to be done (Linux on amd64), a handler puts a page of
// zeros in the place of the one that could not be had, private to the process, and
// counts. The library goes on with that, and nobody but this process will ever see
// what it writes there: who uses it looks at [Faults], and does not rely on what it
// wrote, or read, since that has grown.
//
// What is not such a fault goes to the Go runtime as ever, which ends the process: a
// signal that somebody has sent, memory that is broken, a page of the program or of
// the heap, and one that was swapped out and cannot be read back. To go on without
// those would be to forget what this process has promised.
package sigbus
