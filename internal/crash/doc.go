// Package crash keeps what the Go runtime says when it ends a process, by a panic
// that nobody recovers or a fatal error. The process may be in the background, and
// another one in its place a moment later: what it said would be lost in a log.
//
// A process that begins has its last words written to a file (see
// [runtime/debug.SetCrashOutput]), below a few lines that say what it is. If the
// one before it has left some, they become a report, of which there are at most
// [Keep].
package crash
