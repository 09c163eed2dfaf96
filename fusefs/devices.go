package fusefs

import (
	"log/slog"
	"sync"
)

// devices are the file systems below the root: that of the root itself, and
// others that are mounted, or are subvolumes, somewhere in the tree.
type devices struct {
	root uint64
	log  *slog.Logger

	ledger *ledger // or nil

	mu    sync.RWMutex
	known map[uint64]*subDevice
}

type subDevice struct {
	index  uint64
	path   string // where it was entered last
	warned bool
	line   uint32 // of the ledger
}

func newDevices(root uint64, log *slog.Logger) *devices {
	return &devices{root: root, log: log, known: make(map[uint64]*subDevice)}
}

// crossed records that the file system dev begins at path.
func (d *devices) crossed(dev uint64, path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.known[dev]
	if s == nil {
		s = &subDevice{index: uint64(len(d.known) + 1), path: path}
		d.known[dev] = s
		d.ledger.device(dev, s)
		return
	}
	if s.path == path {
		return
	}
	if !s.warned {
		s.warned = true
		d.log.Warn("a file system was found at two places of the shared directory; if it is mounted at both, "+
			"programs on different hosts that lock its files through different ones are not kept apart",
			"path", s.path, "path2", path)
	}
	s.path = path
	d.ledger.device(dev, s)
}

// at is where a file system was entered last.
func (d *devices) at(dev uint64) string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if s := d.known[dev]; s != nil {
		return s.path
	}
	return ""
}

// ino is the inode number that programs see: that of the storage. Files of
// other file systems below the root get their number in that file system with
// a mark in the upper bits, so that it does not look like a hard link of a
// file of the root's.
func (d *devices) ino(dev, ino uint64) uint64 {
	if dev == d.root {
		return ino
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if s := d.known[dev]; s != nil {
		return ino ^ s.index<<subDeviceShift
	}
	return ino
}

// subDeviceShift leaves room for the numbers that file systems give in practice.
const subDeviceShift = 48
