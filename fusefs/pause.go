package fusefs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pauseTry is for how long no request is read, at most, while something does
	// not come to rest that may wait for one that is not read. Then the mount
	// goes on for pauseBreath, before the next try.
	pauseTry, pauseBreath = 250 * time.Millisecond, 50 * time.Millisecond
	// pauseLook is how often it is looked whether all is at rest.
	pauseLook = 200 * time.Microsecond
)

var errMountEnded = errors.New("fusefs: the mount has ended")

// pauseMount is [Server.Pause].
func pauseMount(ctx context.Context, f *fileSystem, m mountpoint) error {
	// What the process before this one has left must have begun, or it would be missing
	// in what is exported.
	select {
	case <-f.conn.serving:
	case <-f.conn.dead:
		return errMountEnded
	case <-ctx.Done():
		return fmt.Errorf("fusefs: the mount is not served yet: %w", context.Cause(ctx))
	}
	if f.pause.on.Load() {
		return errors.New("fusefs: the mount is paused already")
	}
	for {
		try, cancel := context.WithTimeout(ctx, pauseTry)
		f.pause.begin()
		f.conn.readers.pause()
		stirs := comeToRest(try, f, m)
		cancel()
		if stirs == "" {
			return nil
		}
		unpause(f)
		select {
		case <-f.conn.dead:
			return errMountEnded
		case <-ctx.Done():
			return fmt.Errorf("the mount does not come to rest: %s: %w", stirs, context.Cause(ctx))
		case <-time.After(pauseBreath):
		}
	}
}

// unpause is [Server.Unpause].
func unpause(f *fileSystem) {
	f.pause.open()
	f.pause.end()
	f.conn.readers.goOn()
}

// comeToRest waits until all is at rest, or tells what is not when ctx ends.
func comeToRest(ctx context.Context, f *fileSystem, m mountpoint) (stirs string) {
	t := time.NewTicker(pauseLook)
	defer t.Stop()
	for {
		if err := wakeReaders(f, m); err != nil {
			return "readers of requests cannot be woken up: " + err.Error()
		}
		if isQuiet(f) {
			f.retries.unlock()
			f.pause.shut.Store(true)
			if isQuiet(f) { // whoever has begun meanwhile did so before, and is seen
				return ""
			}
			f.pause.open()
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return whatStirs(f)
		}
	}
}

// wakeReaders has read(2) of /dev/fuse return to all who wait there: each is sent a
// request for that purpose, STATFS, and stops when it has answered. There is no other
// way in which no request of a program could get lost. Who asks waits as a program
// would; if the request is not read it ends with the process.
func wakeReaders(f *fileSystem, m mountpoint) error {
	for waiting, _ := f.conn.readers.atWork(); int64(waiting) > f.wakes.Load(); {
		fd, err := m.open()
		if err != nil {
			return err
		}
		f.wakes.Add(1)
		go func() { // until it is answered, or the process ends
			defer f.wakes.Add(-1)
			defer unix.Close(fd)
			var st unix.Statfs_t
			_ = unix.Fstatfs(fd, &st)
		}()
	}
	return nil
}

// isQuiet reports whether all is at rest.
func isQuiet(f *fileSystem) bool {
	waiting, serving := f.conn.readers.atWork()
	p := f.pause
	return waiting == 0 && int64(serving) == p.waiting.Load() && p.busy.Load() == 0 && p.telling.Load() == 0 &&
		f.tree.closings.pending() == nil
}

// whatStirs says, for people, what is not at rest.
func whatStirs(f *fileSystem) string {
	waiting, serving := f.conn.readers.atWork()
	p := f.pause
	var all []string
	say := func(n int64, what string) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, what))
		}
	}
	say(int64(waiting), "readers of requests")
	say(int64(serving)-p.waiting.Load(), "requests of programs, which the storage does not answer or which wait for others")
	say(p.telling.Load(), "notifications to the kernel, which wait for pages or directories that programs use, and files that are written out or looked at anew for a lock")
	say(p.busy.Load(), "tasks in the background")
	if f.tree.closings.pending() != nil {
		say(1, "file that is being removed")
	}
	if len(all) == 0 {
		return "something that began all the time"
	}
	return strings.Join(all, ", ")
}
