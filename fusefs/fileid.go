package fusefs

import (
	"fmt"
	"slices"
	"strconv"
)

// FileIDs says how locks name files, so that all hosts mean the same one.
type FileIDs string

const (
	// FileIDAuto is FileIDInode where the storage gives all its clients the
	// same inode numbers (see [Storage]), and FileIDPath elsewhere.
	FileIDAuto FileIDs = "auto"
	// FileIDInode names a file by its inode number on the storage.
	FileIDInode FileIDs = "inode"
	// FileIDPath names a file by its path below the root of the shared
	// directory. Two hard links are then two files; a file that is locked, or
	// open on another host, cannot be renamed (see moves.go).
	FileIDPath FileIDs = "path"
)

// ParseFileIDs reads what the option --file-id says: the value of one of the
// constants. Anything else is an error that names them.
func ParseFileIDs(s string) (FileIDs, error) {
	switch m := FileIDs(s); m {
	case FileIDAuto, FileIDInode, FileIDPath:
		return m, nil
	}
	return "", fmt.Errorf("unknown kind of file ID %q (known: auto, inode, path)", s)
}

// fileIDs makes the names of files in locks: "i" and the inode number; for a
// file below the mount point of another file system "d", the path of that, ":i"
// and the inode number there; or "p" and a path.
//
// The device number of another file system is this host's own affair, but
// where it is mounted is the same everywhere.
type fileIDs struct {
	paths   bool
	devices *devices
}

// REQUIRES: tree.mu held.
func (t *tree) makeFile(n *node) string {
	if t.ids.paths {
		return "p" + t.pathOf(n)
	}
	ino := "i" + strconv.FormatUint(n.key.ino, 10)
	if n.key.dev == t.root.key.dev {
		return ino
	}
	return "d" + t.beginning(n) + ":" + ino
}

// beginning is the path at which the file system of n begins.
// REQUIRES: mu held.
func (t *tree) beginning(n *node) string {
	for p, depth := n, 0; len(p.names) > 0 && depth < maxDepth; depth++ {
		dir := p.names[len(p.names)-1].dir
		if dir.key.dev != n.key.dev {
			return t.pathOf(p)
		}
		p = dir
	}
	return t.ids.devices.at(n.key.dev) // n has no name any more
}

// identify is what locks call n, and its path.
func (t *tree) identify(n *node) (file, path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.file == "" {
		t.setFile(n, t.makeFile(n))
	}
	return n.file, t.pathOf(n)
}

// closed is called when the last handle of n is closed: if locks go by path,
// the next ones go by the path that n has then.
func (t *tree) closed(n *node) {
	if !t.ids.paths {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setFile(n, "")
}

// REQUIRES: mu held.
func (t *tree) setFile(n *node, file string) {
	if n.file != "" {
		ns := t.byFile[n.file]
		if i := slices.Index(ns, n); i >= 0 {
			ns = slices.Delete(ns, i, i+1)
		}
		if len(ns) == 0 {
			delete(t.byFile, n.file)
		} else {
			t.byFile[n.file] = ns
		}
	}
	if n.file = file; file != "" {
		t.byFile[file] = append(t.byFile[file], n)
	}
	t.ledger.note(t, n)
}

// ofFile are the nodes that locks call by this name, pinned.
func (t *tree) ofFile(file string) []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	ns := slices.Clone(t.byFile[file])
	for _, n := range ns {
		n.pins++
	}
	return ns
}

// pinned pins those of ns that are known to the kernel and not in except. It
// uses the memory of ns.
func (t *tree) pinned(ns, except []*node) []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := ns[:0]
	for _, n := range ns {
		if !n.forgotten && !slices.Contains(except, n) {
			n.pins++
			kept = append(kept, n)
		}
	}
	return kept
}
