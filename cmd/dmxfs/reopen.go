package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// reopenTime is how long the storage has to answer before a daemon is started.
const reopenTime = 10 * time.Second

// reopen sees to it that the next daemon gets a shared directory that can be
// used. The one that is open is taken after one that was usable: its path may
// lead to the bare directory on which the storage is not mounted any more. But
// if a start was in vain, or it is gone, its path is opened anew. What is found
// there has to have the same cluster, as every daemon checks.
func (w *watcher) reopen(ctx context.Context) error {
	if w.found == nil { // else a former look hangs still
		w.found = make(chan found, 1)
		go func(to chan<- found, old *os.File, anew bool) { to <- w.look(old, anew) }(w.found, w.root, w.failures > 0)
	}
	select {
	case r := <-w.found:
		w.found = nil
		if r.err != nil {
			return &mayPass{r.err}
		}
		if r.root != nil {
			w.root.Close()
			w.root = r.root
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(reopenTime):
		return &mayPass{fmt.Errorf("the shared directory %s does not answer for %v", w.cfg.Source, reopenTime)}
	}
}

// found is what a look at the shared directory comes to: a root if it had to be
// opened anew.
type found struct {
	root *os.File
	err  error
}

func (w *watcher) look(old *os.File, anew bool) found {
	why := rootAlive(old)
	if why == nil && !anew {
		return found{}
	}
	root, err := w.openAgain()
	if err == nil {
		if err = rootAlive(root); err == nil {
			return found{root: root}
		}
		root.Close()
	}
	if why == nil {
		return found{}
	}
	return found{err: fmt.Errorf("the shared directory %s is gone (%w), and its path leads to no other: %w", w.cfg.Source, why, err)}
}

// openAgain opens the shared directory by its path.
func (w *watcher) openAgain() (*os.File, error) {
	if w.cfg.Source == w.cfg.Mountpoint && isDead(w.cfg.Mountpoint) {
		return openUnder(w.cfg.Mountpoint)
	}
	if w.cfg.Source == w.cfg.Mountpoint {
		return nil, fmt.Errorf("%s is not the dead mount any more", w.cfg.Mountpoint)
	}
	return os.Open(w.cfg.Source)
}
