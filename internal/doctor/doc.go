// Package doctor finds out what a shared directory keeps between two hosts.
//
// An examination has two sides, each a process of its own that does orders in
// the directory and answers what came of them: two on one host, with two mounts
// of the storage, or one on each of two hosts, which speak over a connection to
// which a code admits. What they find is told in words ([Finding]), with the
// options that the storage needs.
//
// The program that imports this package serves the hidden commands
// [HandsCommand] and [MountCommand] with [ServeHands] and [ServeMount]: the
// processes of a side are started from /proc/self/exe.
package doctor
