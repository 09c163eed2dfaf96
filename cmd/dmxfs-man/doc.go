// Command dmxfs-man makes the man pages of dmxfs, in the Markdown of go-md2man: of
// each command from what `dmxfs command-tree` prints, and mount.fuse.dmxfs(8) and
// dmxfs-policy(5) from the texts beside it. tools/packages/build uses it.
//
//	dmxfs command-tree | dmxfs-man -out DIR -version 0.1.0 -date 2026-11-23
package main
