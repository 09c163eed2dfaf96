package supervise

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/trouble"
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
			return trouble.MayPass(r.err)
		}
		if r.root != nil {
			w.root.Close()
			w.root = r.root
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(reopenTime):
		return trouble.MayPass(fmt.Errorf("the shared directory %s does not answer for %v", w.cfg.Source, reopenTime))
	}
}

// found is what a look at the shared directory comes to: a root if it had to be
// opened anew.
type found struct {
	root *os.File
	err  error
}

func (w *watcher) look(old *os.File, anew bool) found {
	why := mountpoint.Alive(old)
	if why == nil && !anew {
		return found{}
	}
	root, err := mountpoint.OpenAgain(w.cfg.Source, w.cfg.Mountpoint)
	if err == nil {
		if err = mountpoint.Alive(root); err == nil {
			return found{root: root}
		}
		root.Close()
	}
	if why == nil {
		return found{}
	}
	return found{err: fmt.Errorf("the shared directory %s is gone (%w), and its path leads to no other: %w", w.cfg.Source, why, err)}
}
