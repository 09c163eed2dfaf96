package fusefs

import (
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// privateDir is where the daemons of a shared directory keep what they tell
// each other. It is not for programs.
const privateDir = ".dmxfs"

// clusterFile says that a directory is the shared one of a cluster.
const clusterFile = privateDir + "/cluster"

// clusterEvery is how often, in milliseconds, a directory is asked whether it
// has become the shared directory of another cluster.
const clusterEvery = 10_000

// private is what of the shared directory programs do not get at: privateDir,
// whatever it is called, and directories below that are the shared directory
// of another cluster. A file there would have one lock here and another one
// for the hosts that mount that directory.
type private struct {
	*base
	key   fileKey // of privateDir
	folds bool    // names that differ in case are one

	mu     sync.Mutex
	nested []string // paths of shared directories below the root
}

// open finds out what privateDir is; root is the shared directory.
func (p *private) open(root int) {
	var st unix.Stat_t
	if unix.Fstatat(root, privateDir, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return // tests of the mount alone have none
	}
	p.key, p.folds = keyOf(&st), FoldsCase(root)
}

// FoldsCase reports whether the storage of a shared directory, in which the
// cluster has been made, takes names that differ in case for one.
func FoldsCase(root int) bool {
	var one, other unix.Stat_t
	return unix.Fstatat(root, privateDir, &one, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstatat(root, strings.ToUpper(privateDir), &other, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		keyOf(&one) == keyOf(&other)
}

// hidden reports whether a name is kept from programs.
func (p *private) hidden(dir *node, name string) bool {
	if dir != p.tree.root {
		return false
	}
	if strings.EqualFold(name, privateDir) {
		return true
	}
	// Such storage can have more names for one directory: short ones, others
	// that Unicode takes for the same.
	var st unix.Stat_t
	return p.folds && unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && p.isPrivate(&st)
}

// isPrivate reports whether a file is privateDir, by whatever name.
func (p *private) isPrivate(st *unix.Stat_t) bool {
	return p.key != fileKey{} && keyOf(st) == p.key
}

// foreign reports whether n, which is called name in dir, is the shared
// directory of another cluster. It asks the storage at the first lookup, and
// then from time to time.
func (p *private) foreign(dir *node, name string, n *node) bool {
	if !n.isDir() || n == p.tree.root {
		return false
	}
	now := p.now()
	last := n.cluster.Load()
	if last > 0 && now-last < clusterEvery {
		return false
	}
	var st unix.Stat_t
	err := unix.Fstatat(dir.fd, name+"/"+clusterFile, &st, unix.AT_SYMLINK_NOFOLLOW)
	is := err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
	if is {
		now = -1
	}
	if n.cluster.Store(now); is || last <= 0 { // the node may be a new one
		p.note(p.tree.join(dir, name), is)
	}
	return is
}

func (p *private) note(path string, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.nested, path)
	switch {
	case is && i < 0 && len(p.nested) < 100:
		p.nested = append(p.nested, path)
	case !is && i >= 0:
		p.nested = slices.Delete(p.nested, i, i+1)
	}
}
