// Command dmxfs mounts a directory that several hosts share, and keeps
// programs on all of them apart by locks that it has no server for.
//
// See README.md for its use and docs/ARCHITECTURE.md for what is behind it.
package main
