// Package lease decides which node may let its kernel keep names and attributes
// for long, and when a node may change any.
//
// # The rule
//
// There is one lock for all names and attributes of the shared directory. A node
// holds it in one of two modes:
//
//   - [Change], shared: it may change names and attributes, and so may all other
//     nodes. Nobody keeps anything for long.
//   - [Keep], exclusive: it alone may change them, so its kernel may keep what it
//     is told, for as long as the node holds the lock.
//
// A node that only looks needs nothing; it does not keep for long what it sees.
// So the invariant is: while a node changes something, no other one's kernel
// keeps anything for long. It is that of readers and writers, the other way
// round: who changes is the reader of the lock, and who keeps its writer.
//
// # Who waits for whom
//
// A change waits for the node that keeps: that has its kernel drop all that it
// was told, and then gives the lock up. Nothing waits for a change: a node that
// wants to keep tries the lock, and never stands in the queue, where other nodes'
// changes would come behind it. Of two nodes that keep in turns the changes of
// each would wait for the other; that Keep is exclusive makes it impossible, and
// with it a deadlock through the kernel, which makes changes with a directory
// locked that it has to lock again to drop a name.
// For the same reason no change waits for the lock while everything is dropped, unless
// that has been done very often: see [Machine.Begin]. A drop goes on beside all else.
//
// A node that was refused, or had to give up soon, pauses before it tries again. One
// that keeps is not told of a try; so it gives the lock up when its kernel has asked for
// nothing for as long as that may keep anything.
//
// # Purity
//
// [Machine] reads no clock and does nothing by itself: [Machine.Next] says what
// to do, one thing at a time, and the caller tells how it ended. The caller
// guards it by a mutex. Times are milliseconds, on any clock that does not go
// backwards.
//
// The lease is a concept of C. Gray and D. Cheriton (Leases: An Efficient
// Fault-Tolerant Mechanism for Distributed File Cache Consistency, SOSP 1989):
// the kernel's time-outs are its term, the lock is what ends it before, and
// what bounds it where a node stands still or was cut off.
package lease
