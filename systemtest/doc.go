// Package systemtest tries dmxfs as a whole, without a kernel and without a
// network: the membership machine and its driver, the lock engine and the
// machines of the algorithms, as they are in the daemon, on several nodes under
// the virtual time of testing/synctest. It has no code but tests.
//
// # The world
//
// Nodes have clocks that drift and jump. Processes are stopped at any moment
// and at chosen ones, and die. Daemons are replaced, or killed, and others go on in
// their place. Links are cut, one way or both, lose, repeat and delay. The storage is
// slow, hangs, fails, lies about failures, carries links out long after, shows old
// listings, another directory, or an older state. State directories are copied and
// machines cloned. On each node some programs take locks and read and write under
// them, as the mount does it: a write is admitted, and reaches the storage some time
// later.
//
// # What is checked
//
//   - Exclusion: no two locks that conflict are held at any moment by nodes that
//     may still do I/O under them by their own clocks.
//   - Data: a read under a lock sees what was written last; no update is lost; no
//     write arrives after one of the next holder (unless the storage kept it
//     back for longer than is promised, and then it is reported).
//   - Tokens rise from a grant to the next one that conflicts.
//   - At most one epoch is live, and nobody who was dropped.
//   - Whoever loses a lock is told, and the journal is.
//   - Of two that have one identity one is refused, and no view has members that tell
//     files apart by different things.
//   - After the last fault all nodes are together within the bound of package
//     member, and then every request for a lock ends.
//
// A run is decided by its seed; a failure prints the command that repeats it.
//
// # Planted bugs
//
// For each of a list of mistakes that a change of the code could make, a test
// plants it at the seams between the parts and wants it found.
package systemtest
