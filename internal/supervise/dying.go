package supervise

import (
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

// EndDying ends what is left of the daemon of a state directory, if it was
// killed together with its watcher and cannot end.
func EndDying(state, point string) error { return endDyingBy(state, point, mountpoint.Abort) }

func endDyingBy(state, point string, abort func(point string) error) error {
	b, err := os.ReadFile(filepath.Join(state, "lock"))
	if err != nil {
		return nil // there never was one, or statedir.Open says what is wrong
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return nil
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for process.Dying(pid) && nodestate.Upgrading(state) {
		<-tick.C
	}
	if !process.Dying(pid) {
		return nil
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

// NotHanging refuses a mount point of a daemon that does not answer within limit, since
// whoever looks at it waits as long. It is asked before a user's mount only: one that
// is made anew may find what passes. A daemon that was killed together with its
// watcher, and cannot end for its mount, is helped to.
func NotHanging(cfg config.Config, limit time.Duration) error {
	if err := EndDying(cfg.State, cfg.Mountpoint); err != nil {
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
