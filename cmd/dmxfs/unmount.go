package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/supervise"
)

func newUnmountCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "unmount [MOUNTPOINT]", Aliases: []string{"umount"}, Short: "Unmount, and leave the cluster in good order",
		Long: `Unmount, and leave the cluster in good order: the locks of this node come free
for the others at once. It returns when the daemon has ended. Copies of the mount
in other mount namespaces, as containers have, fail from then on; with --lazy
they go on. A plain umount(8) does the same, but returns earlier, and leaves the
copies, and with them the daemon.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	lazy := c.Flags().Bool("lazy", false, "detach a mount that is in use: files that are open go on until they are closed")
	timeout := c.Flags().Duration("timeout", admin.OrderTime, "how long to wait for the daemon; what it has not begun with by then it does not do")
	c.RunE = func(c *cobra.Command, args []string) error {
		point, err := mountpoint.Which(args)
		if err != nil {
			return err
		}
		return unmountWithin(c.Context(), *timeout, point, *lazy)
	}
	return c
}

// unmountWithin unmounts, also if the daemon is killed meanwhile: the one that goes on in its
// place is told, or the one that is started anew does not come to it.
func unmountWithin(ctx context.Context, timeout time.Duration, point string, lazy bool) error {
	until := time.Now().Add(timeout)
	for ; ; timeout = time.Until(until).Round(time.Millisecond) {
		err := unmount(ctx, timeout, point, lazy)
		if !errors.Is(err, admin.ErrEnded) || time.Now().After(until) {
			return err
		}
		switch is, err := isMounted(point); {
		case err != nil:
			return err
		case is:
			continue
		case lazy:
			return nil
		}
		// It was unmounted, as far as that goes.
		r, err := statedir.Registered(point)
		if err != nil {
			return nil
		}
		if err := endWatcher(ctx, r.State); err != nil {
			return err
		}
		return waitGone(ctx, r.State)
	}
}

func isMounted(point string) (bool, error) {
	all, err := mountinfo.Read()
	if err != nil {
		return false, err
	}
	m, ok := mountinfo.At(all, point)
	return ok && m.Type == mountpoint.Type, nil
}

// unmount unmounts once. The daemon is waited for as long as that.
func unmount(ctx context.Context, timeout time.Duration, point string, lazy bool) error {
	is, err := isMounted(point)
	if err != nil {
		return err
	}
	r, err := statedir.Registered(point)
	if !is {
		return endLeft(ctx, point, r)
	}
	if err != nil {
		return mountpoint.Remove(point, lazy) // a mount of another user, or a very old one
	}
	if err := supervise.EndDying(ctx, r.State, point); err != nil {
		return err
	}
	awaitWatcher, forget := watcherEnd(r.State)
	defer forget()
	cl := ask.NewClient(r.State)
	path := "/unmount"
	if lazy {
		path += "?lazy=1"
	}
	cl.Timeout = timeout
	resp, err := cl.Do(ctx, http.MethodPost, path)
	if errors.Is(err, admin.ErrNoDaemon) { // a dead mount: its daemon was killed
		if err := endWatcher(ctx, r.State); err != nil {
			return err
		}
		return mountpoint.Remove(point, lazy)
	}
	if err != nil {
		return err
	}
	resp.Body.Close()
	if lazy {
		return nil
	}
	if err := waitGone(ctx, r.State); err != nil {
		return err
	}
	awaitWatcher(watcherTime)
	return nil
}

// endLeft ends what is left of a mount that is not in its place any more: a watcher
// that waits for its storage, and would mount again. A daemon that is left has users.
func endLeft(ctx context.Context, point string, r statedir.Registration) error {
	none := exitcode.With(exitcode.NoMount, fmt.Errorf("%s is no dmxfs mount", point))
	lock, err := os.Open(filepath.Join(r.State, "lock"))
	if r.State == "" || err != nil {
		return none
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return exitcode.With(exitcode.Busy, fmt.Errorf("%s is not mounted here any more, but programs, or other mount namespaces, have it still: its daemon%s ends with them, or by SIGTERM",
			point, statedir.Owner(lock)))
	}
	lock.Close() // it may be on its way
	if pid, err := supervise.WatcherOf(r.State); err != nil || pid == 0 {
		return none
	}
	return endWatcher(ctx, r.State)
}

// endWatcher ends the process that would start a new daemon and mount again, and
// the daemon that it may just have started.
func endWatcher(ctx context.Context, state string) error {
	pid, err := supervise.WatcherOf(state)
	if err != nil {
		return fmt.Errorf("see whether the daemon is about to be started anew: %w", err)
	}
	if pid == 0 {
		return nil
	}
	if err := process.End(pid); err != nil && err != unix.ESRCH {
		return fmt.Errorf("end the process %d, which starts the daemon anew: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if now, err := supervise.WatcherOf(state); err != nil || now != pid {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the process %d, which starts the daemon anew, does not end", pid)
		case <-tick.C:
		}
	}
}

// waitGone returns when the daemon of the state directory has ended: it holds
// the lock of the directory for as long as it lives.
func waitGone(ctx context.Context, state string) error {
	f, err := os.Open(filepath.Join(state, "lock"))
	if err != nil {
		return fmt.Errorf("see whether the daemon has ended: %w", err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("unmounted, but its daemon has not ended yet")
		case <-tick.C:
		}
	}
}

// watcherTime is how long unmount waits for the watcher, which ends when the
// daemon has.
const watcherTime = 5 * time.Second

// watcherEnd takes hold of the watcher of a state directory; await waits for
// its end, if there is one. It has the shared directory open, and what that is
// on could not be unmounted before.
func watcherEnd(state string) (await func(time.Duration), forget func()) {
	none := func(time.Duration) {}
	pid, err := supervise.WatcherOf(state)
	if err != nil || pid == 0 {
		return none, func() {}
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return none, func() {}
	}
	await = func(d time.Duration) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for end := time.Now().Add(d); ; {
			if _, err := unix.Poll(p, int(time.Until(end).Milliseconds())); err != unix.EINTR || time.Now().After(end) {
				return
			}
		}
	}
	return await, func() { unix.Close(fd) }
}
