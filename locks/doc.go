// Package locks is the vocabulary of dmxfs and the contract between a
// distributed mutual exclusion algorithm and the engine that drives it.
//
// # Words
//
//   - A node is one running daemon: one mount on one host, in one incarnation.
//   - A key names one lockable thing: a file and a class of lock. Classes
//     never conflict with each other, as on Linux, where flock(2) and fcntl(2)
//     do not see each other.
//   - A ticket is one request of one local owner for one range of a key, in
//     one mode. It waits, then it is held or denied, and then it is gone.
//   - A machine is one node's part of an algorithm for one key.
//   - A view is an epoch and the list of its members. Within one epoch every
//     member is alive and every pair of members has a channel that loses and
//     repeats nothing; package p2p/member makes that true.
//
// # Purity
//
// Nothing here, and nothing in the packages of the algorithms, reads a clock,
// draws a random number, starts a goroutine or does I/O. A machine that is
// given the same calls makes the same turns, byte for byte. That is what makes
// exhaustive search and replay of a seed possible.
//
// # Order of effects
//
// A turn says what a machine did: whom to tell, and which tickets came to an
// end of their waiting. The caller sends in the order of [Turn.Send]; for each
// receiver that order is kept on the way. When [Turn.Handover] is set, what
// local programs wrote under the key must be on the shared storage before the
// first message of the turn leaves.
package locks
