// Package mountpoint is about the two directories of a mount, the mount point and the
// shared directory: which are there, what is wrong with them before anything is mounted,
// how the shared directory is opened below a dead mount, and how such a mount is taken
// away.
//
// Commands use it, and the processes of a mount. It knows neither daemons nor locks.
package mountpoint
