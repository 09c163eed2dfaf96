package systemtest

import (
	"fmt"
	"hash/fnv"
	"sync/atomic"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// host is what outlives a process.
type host struct {
	offset atomic.Int64 // of its clock, ms
	ppm    int64        // its drift
	boot   string
	lock   member.LockFile
	saved  member.Saved // guarded by world.mu
	lives  []member.Inc // beside the lock; guarded by world.mu
	dirty  *dirtyPages
	copied bool // its state directory is a copy of another one's
	addr   string
	fileID string // what it tells files apart by; empty: as all others do
	// restored: an admin says that the storage was.
	restored bool
	// claimed is what member.LinkOp.Claim said last; guarded by world.mu.
	claimed []member.Node
}

// newHost makes a host with a clock of its own.
func (w *world) newHost() *host {
	w.boots++
	h := &host{boot: fmt.Sprintf("boot%d", w.boots), lock: member.LockFile{Dev: 1, Ino: uint64(w.boots)}, dirty: newDirtyPages(w)}
	h.offset.Store(100_000 + w.rng.Int64N(1_000_000))
	if d := w.opt.drift; d > 0 {
		h.ppm = w.rng.Int64N(2*d+1) - d
	}
	w.hosts = append(w.hosts, h)
	return h
}

// files is what the host tells files apart by.
func (h *host) files() string {
	if h.fileID != "" {
		return h.fileID
	}
	return "inode 1"
}

// reboot makes the host another one, for what is proved of the dead.
func (w *world) reboot(h *host) *host {
	w.boots++
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &host{ppm: h.ppm, boot: fmt.Sprintf("boot%d", w.boots), lock: member.LockFile{Dev: 1, Ino: uint64(w.boots)}, saved: h.saved, dirty: newDirtyPages(w)}
	n.offset.Store(h.offset.Load())
	w.hosts = append(w.hosts, n)
	return n
}

// sourceOf is a number for a name, for random numbers of its own.
func sourceOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}
