// Package keeper keeps the descriptors of a process open when that is killed, for the
// one that takes its place: open files, also those that were removed, sockets, and the
// kernel's connection of a mount, as the very same open files.
//
// A keeper is a process that shares the table of descriptors with the one that has made
// it (CLONE_FILES), but not its memory, and that does nothing. So whatever that process
// opens and closes, the keeper has open as well, under the same number, and nobody has
// to tell it. The next process takes them out of it by pidfd_getfd(2), by number.
//
// # When it ends
//
// A keeper waits for the end of a pipe, of which somebody else has the other end: who
// watches over both processes. So it ends when that one does, and when it is told to.
// Whoever the orphans of the dead process go to waits for it (init, or who watches, by
// PR_SET_CHILD_SUBREAPER).
//
// As long as it lives what it has open is not closed: readers of a pipe of which the
// dead process had the other end see no end of it.
//
// # What it must not be used with
//
// A process that becomes another one by execve(2) leaves the table to its keeper; it
// stops that first. Locks by fcntl(2) belong to the table: they stay for as long as the
// keeper lives, and who takes the descriptor does not have them. Those by flock(2), and
// those of open file descriptions, go along.
//
// # Rights
//
// Who takes needs the right to trace the keeper (ptrace(2)): that of root, or of the
// same user, if no security module forbids that. Start and Take say what is missing.
package keeper
