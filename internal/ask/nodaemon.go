package ask

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/supervise"
)

// NoDaemon says what mount a missing daemon belongs to, and what to do.
func NoDaemon(err error, r statedir.Registration) error {
	if exitcode.Of(err) != exitcode.NoMount {
		return err
	}
	if started := startedAnew(r); started != nil {
		return exitcode.With(exitcode.NoMount, fmt.Errorf("%w for %s: its daemon has ended, and %w", err, r.Mountpoint, started))
	}
	return exitcode.With(exitcode.NoMount, fmt.Errorf("%w for %s: it is not mounted, or its daemon has ended (mount it with: dmxfs %s)", err, r.Mountpoint, mountArgs(r)))
}

// startedAnew says what has become of the process that starts the daemon of a mount
// anew; nil: there is none.
func startedAnew(r statedir.Registration) error {
	pid, err := supervise.WatcherOf(r.State)
	if err != nil || pid == 0 {
		return nil
	}
	if process.Stopped(pid) {
		return errors.New(isStopped(pid))
	}
	var s admin.Status
	if supervise.AskWatcher(r.State, &s) != nil {
		return fmt.Errorf("the process that starts it anew, %d, does not answer: end it (kill -9 %d) and mount again with: dmxfs %s", pid, pid, mountArgs(r))
	}
	return fmt.Errorf("process %d starts it anew: %s", pid, strings.Join(s.Problems, "; "))
}

func isStopped(watcher int) string {
	return fmt.Sprintf("the process that starts it anew is stopped: kill -CONT %d lets it go on", watcher)
}

// NewClient is a client of the daemon whose state directory state is. With takeovers
// there are calls that nobody answers while there is no daemon.
func NewClient(state string) *admin.Client {
	c := admin.NewClient(state)
	c.Why = func() string {
		if pid, err := supervise.WatcherOf(state); err == nil && pid != 0 && process.Stopped(pid) {
			return "it is busy, or stopped, or it has ended, and " + isStopped(pid)
		}
		return ""
	}
	return c
}

// Waiting is the status of a mount that has no daemon, but a process that
// starts one. That answers at once, or never.
func Waiting(state string, v *admin.Status) error {
	if pid, err := supervise.WatcherOf(state); err == nil && pid != 0 && process.Stopped(pid) {
		return errors.New("it is stopped")
	}
	return supervise.AskWatcher(state, v)
}

func mountArgs(r statedir.Registration) string {
	if r.Source == r.Mountpoint {
		return r.Mountpoint
	}
	return r.Source + " " + r.Mountpoint
}
