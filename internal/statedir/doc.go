// Package statedir is where a mount keeps what it knows: its state directory,
// which belongs to one daemon at a time, to one user and to no shared storage,
// and what tells the commands which state directory a mount point has.
package statedir
