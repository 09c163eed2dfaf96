package supervise

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/process"
)

// unblocked is standard error, for who logs. If it is a pipe of which this process itself has
// the other end, logs, so that it can go on to log when its watcher has ended, a write to it
// never fails, though nobody may be left who reads: what would read in this process does not run
// any more while the Go runtime ends it. That writes down all goroutines, more than a pipe holds,
// would wait for ever, and the mount would hang.
//
// So such a pipe does not block from here on. Who logs waits for room without that. What there is
// no room for of the runtime's last words is lost in the log alone, as they are also written to
// a report, see package crash.
func unblocked(stderr io.Writer, logs int) io.Writer {
	f, ok := stderr.(*os.File)
	if !ok || !isPipeOf(f, logs) { // a terminal, say, is that of others, too
		return stderr
	}
	// os.Stderr is taken for one that blocks, and would lose lines.
	fd, err := process.Duplicate(f)
	if err != nil {
		return stderr
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return stderr
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// isPipeOf reports whether f is a pipe, and the descriptor other one of its ends.
func isPipeOf(f *os.File, other int) bool {
	var a, b unix.Stat_t
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Fstat(int(fd), &a) }); err != nil || failed != nil {
		return false
	}
	return unix.Fstat(other, &b) == nil && a.Mode&unix.S_IFMT == unix.S_IFIFO && a.Dev == b.Dev && a.Ino == b.Ino
}
