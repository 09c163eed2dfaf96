package fusefs

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// A file that another host has removed keeps its place on the storage for as
// long as this host has an anchor of it; and the kernel forgets a file that
// nobody asks for by its name again only when it is short of memory. So files
// that are not in use are looked at once in a while, and the kernel is told
// which of them are gone. It forgets those, unless a program holds on to them.
//
// It is done on storage where an anchor counts as use of the file. A client
// that caches holds on to nothing by it, and would have to ask its server.

const (
	// removedRound is the least time from one look at a file to the next: to
	// look can cost messages between the hosts of a cluster file system.
	removedRound = 30 * time.Second
	// removedBatch files are looked at in one go, and then nothing for
	// removedPause.
	removedBatch = 32
	removedPause = time.Second
)

// forgetRemoved works until ctx ends.
func (f *fileSystem) forgetRemoved(ctx context.Context) {
	t := time.NewTimer(f.removedRound)
	defer t.Stop()
	pause := min(removedPause, f.removedRound)
	for hand, began := 0, time.Now(); ; {
		f.pause.rest()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		if !f.pause.work() || ctx.Err() != nil {
			return
		}
		var files []*node
		files, hand = f.tree.idleFiles(hand, removedBatch)
		for _, n := range files {
			f.forgetIfRemoved(n)
			f.tree.unpin(n)
		}
		if len(files) == removedBatch {
			t.Reset(pause)
			continue
		}
		t.Reset(max(pause, f.removedRound-time.Since(began)))
		hand, began = 0, time.Now()
	}
}

// forgetIfRemoved takes the names of n, which is pinned, from the kernel if it
// has none on the storage.
func (f *fileSystem) forgetIfRemoved(n *node) {
	var st unix.Stat_t
	if err := unix.Fstat(f.tree.anchorOf(n), &st); err != nil || st.Nlink > 0 {
		return
	}
	for _, l := range f.tree.namesOf(n) {
		f.dev.removed(l.dir.id, n.id, l.name)
		f.tree.unname(n, l)
		f.tree.unpin(l.dir)
	}
}

// idleFiles are up to most files, no directories, that have an anchor and a
// name and are not in use, pinned for the caller. It begins at hand, and tells
// where to go on.
func (t *tree) idleFiles(hand, most int) (files []*node, next int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes := t.anchors.nodes
	for ; hand < len(nodes) && len(files) < most; hand++ {
		if n := nodes[hand]; n.pins == 0 && len(n.names) > 0 && !n.isDir() {
			n.pins++
			files = append(files, n)
		}
	}
	return files, hand
}
