package supervise

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/process"
)

// A daemon that is killed can be kept from ending by its own mount: one thread
// has told the kernel to drop pages of a file, and waits there, not to be
// interrupted, for a page that a READ keeps locked which nobody will answer any
// more. While that thread lives the connection stays open, so that the READ
// does not fail either, and all programs that use the mount hang. Cutting the
// connection ends it.

// dyingEvery is how often the watcher looks whether the daemon is in that state.
const dyingEvery = 250 * time.Millisecond

// helpToEnd watches the daemon until ended is closed, and cuts off its mount if
// that is what keeps it from ending; not while except is true.
func helpToEnd(ended <-chan struct{}, pid int, point string, except func() bool, log *slog.Logger) {
	tick := time.NewTicker(dyingEvery)
	defer tick.Stop()
	times := 0
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if except() || !process.Dying(pid) {
			times = 0
			continue
		}
		if times++; times%4 != 2 { // not one that just ends; and again if it did not help
			continue
		}
		log.Error("the daemon was killed and cannot end: its mount is cut off", "process", pid, "mount", point)
		if err := mountpoint.Abort(point); err != nil {
			log.Error("the mount cannot be cut off", "err", err)
		}
	}
}

const (
	// handsOverTime is how long a watcher may take until a daemon that was killed has ended, by
	// its own limits: for its last calls, and for the takeover that answers what it hangs in.
	handsOverTime = lastCalls + takeoverTime + 2*time.Second
	// unwatchedTime is how long it may look as if nobody watched. Where the watcher was killed,
	// too, the process that waits to go on watches in its place, but not in the same moment.
	unwatchedTime = 2 * time.Second
)

// EndDying ends what is left of the daemon of a state directory, if it was killed together
// with its watcher and cannot end. A watcher has another daemon go on, or cuts the mount off
// itself: it is left to that as long as there is one, since the mount, and with it all locks,
// would be taken away from who goes on.
func EndDying(ctx context.Context, state, point string) error {
	return endDyingBy(ctx, state, point, mountpoint.Abort)
}

func endDyingBy(ctx context.Context, state, point string, abort func(point string) error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	pid, err := unattended(ctx, state, tick.C)
	if pid == 0 {
		return err
	}
	if err := abort(point); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); process.Dying(pid); <-tick.C {
		if time.Now().After(end) {
			return fmt.Errorf("the former daemon (process %d) was killed and cannot end: does the storage hang?", pid)
		}
	}
	return nil
}

// unattended returns when no daemon of a state directory is dying, or with the one that is and
// that nobody sees to. It looks whenever tick says so.
func unattended(ctx context.Context, state string, tick <-chan time.Time) (pid int, err error) {
	var began, watched time.Time // when this one was first seen, and somebody who watches it last
	for {
		now, last := time.Now(), pid
		switch pid = dyingOf(state); {
		case pid == 0:
			return 0, nil
		case pid != last || nodestate.Upgrading(state): // another one, which has gone on and was killed
			began, watched = now, now
		case isWatched(state):
			watched = now
		}
		if now.Sub(watched) >= unwatchedTime || now.Sub(began) >= handsOverTime {
			return pid, nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// dyingOf is the daemon of a state directory, if it was killed and has not ended; 0: it is
// another one by now, or there is none.
func dyingOf(state string) (pid int) {
	b, err := os.ReadFile(filepath.Join(state, "lock"))
	if err != nil {
		return 0 // there never was one, or statedir.Open says what is wrong
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || !process.Dying(pid) {
		return 0
	}
	return pid
}

// isWatched reports whether a process watches the daemon of a state directory, and could see
// to it: not one that is stopped, or was killed itself.
func isWatched(state string) bool {
	pid, err := WatcherOf(state)
	return err == nil && pid != 0 && !process.Stopped(pid) && !process.Dying(pid)
}

// NotHanging refuses a mount point of a daemon that does not answer within limit, since
// whoever looks at it waits as long. It is asked before a user's mount only: one that
// is made anew may find what passes. A daemon that was killed together with its
// watcher, and cannot end for its mount, is helped to.
func NotHanging(ctx context.Context, cfg config.Config, limit time.Duration) error {
	if err := EndDying(ctx, cfg.State, cfg.Mountpoint); err != nil {
		return err
	}
	all, err := mountinfo.Read()
	if err != nil {
		return err
	}
	m, ok := mountinfo.At(all, cfg.Mountpoint)
	if !ok || m.Type != mountpoint.Type {
		return nil
	}
	answered := make(chan struct{})
	go func() { // until the mount answers, or this process ends
		mountpoint.IsDead(cfg.Mountpoint)
		close(answered)
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-answered:
		return nil
	case <-late.C:
	}
	return exitcode.With(exitcode.Busy, fmt.Errorf("%s is already mounted by dmxfs (its source is %s), and has not answered for %v: is its daemon stopped, or does the storage hang? To replace it, end the daemon, and unmount it by umount -l first",
		cfg.Mountpoint, m.Source, limit))
}
