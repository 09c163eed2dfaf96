// Package succession replaces the program of a daemon by execve(2) in its own process: what
// it has open, the kernel's connection and the lock of its state directory stay as they are,
// and so does its watcher. What it knows goes to the next program in memory that is sealed,
// see package relay: [Heirloom] is what is neither the mount nor the locks.
//
//   - The old program ([Upgrader]) asks the new one whether it could go on ([Terms], by the
//     hidden command [CheckCommand]), pauses the mount, freezes the locks and executes it.
//   - The new one ([Heir]) takes all over, or executes the old program again while nothing
//     is changed yet ([Heir.Back]).
//
// What is left, and how it is taken over, is the daemon's ([Served]); it knows nothing of
// control sockets but their descriptor, nor of the commands that give the order.
package succession
