// Package posix is the algebra of byte-range locks of one owner on one file:
// what fcntl(2) says about replacing, splitting and merging.
//
// An owner has at most one mode on each byte. Its pieces are kept in the order
// of their offsets, and they never overlap. [Place] and [Clear] compute the
// pieces after a lock or an unlock; they do not ask whether the lock may be
// taken, which is for the algorithm that serves the file.
//
// Pieces carry the open file through which they were taken, because the close
// rules of open file description locks need it; two pieces that came through
// different open files are never merged, but a program that asks with F_GETLK
// is told of them as one, see [Extent].
package posix
