package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// watcherFile in a state directory is locked by the process that watches the
// daemon, so that others find it when there is no daemon to ask.
const watcherFile = "watcher"

// lockWatcher says that this process is the watcher of a state directory, for
// as long as the result is open. A POSIX lock tells who has it.
func lockWatcher(state string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(state, watcherFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// WatcherOf is the process that watches the daemon of a state directory; 0 if
// there is none.
func WatcherOf(state string) (pid int, err error) {
	f, err := os.Open(filepath.Join(state, watcherFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
		return 0, err
	}
	if l.Type == unix.F_UNLCK || l.Pid <= 0 { // not a process that could be named, nor be sent a signal
		return 0, nil
	}
	return int(l.Pid), nil
}
