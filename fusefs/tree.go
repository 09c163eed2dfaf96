package fusefs

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// fileKey is the identity of a backing file on this host.
type fileKey struct{ dev, ino uint64 }

func keyOf(st *unix.Stat_t) fileKey { return fileKey{uint64(st.Dev), st.Ino} }

// node is a file that the kernel knows: an inode of the mount.
type node struct {
	id   uint64 // the FUSE node ID; never used again
	key  fileKey
	kind uint32 // the S_IFMT bits of its mode

	// fd is the anchor, or -1; see anchor.go. On a local file system it also
	// keeps the inode number from being used again. It changes under tree.mu;
	// who has pinned the node and has seen an anchor may use it until unpin.
	fd int

	// cluster is when it was last seen not to be the shared directory of another
	// cluster; -1 if it is one; 0: nobody has looked.
	cluster atomic.Int64

	// Guarded by tree.mu.
	slot      int              // in anchors.nodes
	used      bool             // since the hand came by
	spare     bool             // its anchor is not to be kept; see letDown
	forgotten bool             // not in the tree any more
	lookups   uint64           // how often the kernel was told of the node and did not forget it
	pins      int              // open handles, and calls that use fd on their own account
	names     []dirName        // where it was seen last; a directory has at most one
	children  map[string]*node // the inverse of names
	path      string           // valid while pathGen is the tree's
	pathGen   uint64
	file      string // what locks call it; empty until it is asked for

	nodeLocks
	nodeCache
	unwritten unwritten
	appends   appends
	line      *nodeLine // nil: there is no ledger
}

func (n *node) isDir() bool     { return n.kind == unix.S_IFDIR }
func (n *node) isRegular() bool { return n.kind == unix.S_IFREG }

// dirName is a name in a directory.
type dirName struct {
	dir  *node
	name string
	line uint32 // of the ledger
}

// rootID is the node ID of the root, fixed by the protocol.
const rootID = 1

// tree holds all nodes, by ID, by identity and by name.
//
// Names are hints: other hosts rename and remove files without a word. They
// are corrected whenever the kernel looks a name up, and whoever depends on
// one verifies it on the backing file system.
type tree struct {
	mu    sync.Mutex
	byID  map[uint64]*node
	byKey map[fileKey]*node
	// byFile finds nodes by what locks call them. It is nearly always one.
	byFile  map[string][]*node
	last    uint64 // the newest node ID
	anchors anchors
	// closings closes what is dropped, while mu is held by others.
	closings closings
	gen      uint64 // changes when the path of a directory that has children does
	root     *node
	ids      fileIDs
	ledger   *ledger // or nil
}

// newTree takes the descriptor of the root; it keeps so many anchors beside it.
func newTree(rootFD int, st *unix.Stat_t, ids fileIDs, anchors int) *tree {
	t := &tree{
		byID: make(map[uint64]*node), byKey: make(map[fileKey]*node), byFile: make(map[string][]*node),
		last: rootID, gen: 1, ids: ids,
	}
	t.anchors.most = anchors
	t.root = &node{id: rootID, key: keyOf(st), kind: unix.S_IFDIR, fd: rootFD, lookups: 1, pins: 1}
	t.byKey[t.root.key] = t.root
	t.byID[rootID] = t.root
	return t
}

// get is the node with an ID, or nil.
func (t *tree) get(id uint64) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// seen records that dir has name, and that it leads to the file of st. If the
// file is known it returns its node, which then counts one lookup more.
func (t *tree) seen(dir *node, name string, st *unix.Stat_t) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byKey[keyOf(st)]
	if n == nil || n.kind != st.Mode&unix.S_IFMT {
		return nil
	}
	n.lookups++
	t.addName(n, dir, name)
	t.ledger.note(t, n)
	return n
}

// known is the node of the file of st, or nil.
func (t *tree) known(st *unix.Stat_t) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byKey[keyOf(st)]
}

// add is like seen for a file that may be new; fd is an O_PATH descriptor of
// it, which add keeps or closes. dir is nil for a file without a name. The file of
// gone, which may be nil, does not exist any more: its inode number was used again.
func (t *tree) add(dir *node, name string, fd int, st *unix.Stat_t, gone *node) *node {
	t.mu.Lock()
	defer t.unlock()
	key := keyOf(st)
	n := t.byKey[key]
	if n != nil && (n == gone || n.kind != st.Mode&unix.S_IFMT) {
		// The old node stays under its ID until the kernel forgets it.
		n = nil
	}
	if n == nil {
		t.last++
		t.ledger.reserve(nodeIDs, t.last)
		n = &node{id: t.last, key: key, kind: st.Mode & unix.S_IFMT, fd: -1}
		n.bounds.init()
		t.byKey[key] = n
		t.byID[n.id] = n
	}
	n.lookups++
	if n.fd < 0 {
		t.setAnchor(n, fd)
	} else {
		t.closeLater(fd)
	}
	t.ledger.note(t, n)
	if dir != nil {
		t.addName(n, dir, name)
	}
	return n
}

// REQUIRES: mu held.
func (t *tree) addName(n, dir *node, name string) {
	old := dir.children[name]
	if old == n || n == t.root {
		return
	}
	if old != nil {
		t.loseName(old, dir, name)
	}
	for n.isDir() && len(n.names) > 0 {
		t.loseName(n, n.names[0].dir, n.names[0].name)
	}
	n.names = append(n.names, dirName{dir: dir, name: name})
	if dir.children == nil {
		dir.children = make(map[string]*node)
	}
	dir.children[name] = n
	t.pathChanged(n)
	t.ledger.name(n)
	if len(n.names) == 1 {
		t.ledger.note(t, n) // which has no path of its own any more
	}
}

// loseName takes a name from n, which keeps its path if it was the last one.
// REQUIRES: mu held.
func (t *tree) loseName(n, dir *node, name string) {
	if len(n.names) == 1 {
		t.pathOf(n)
	}
	t.dropName(n, dir, name)
	if len(n.names) == 0 {
		t.ledger.note(t, n)
	}
}

// REQUIRES: mu held.
func (t *tree) dropName(n, dir *node, name string) {
	for i, l := range n.names {
		if l.dir == dir && l.name == name {
			t.ledger.forgetName(&n.names[i])
			n.names = append(n.names[:i], n.names[i+1:]...)
			delete(dir.children, name)
			t.pathChanged(n)
			return
		}
	}
}

// REQUIRES: mu held.
func (t *tree) pathChanged(n *node) {
	n.pathGen = 0
	if len(n.children) > 0 {
		t.gen++
	}
}

// gone records that dir has no such name any more.
func (t *tree) gone(dir *node, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := dir.children[name]; n != nil {
		t.loseName(n, dir, name)
	}
}

// unname records that n does not have this name any more; another file may.
func (t *tree) unname(n *node, l dirName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loseName(n, l.dir, l.name)
}

// unnamed takes all names from n, and returns them.
func (t *tree) unnamed(n *node) []dirName {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := slices.Clone(n.names)
	for _, l := range names {
		t.loseName(n, l.dir, l.name)
	}
	return names
}

// linked records one more name of n, which the kernel is told: a lookup.
func (t *tree) linked(n, dir *node, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.lookups++
	t.addName(n, dir, name)
	t.ledger.note(t, n)
}

// renamed records rename(2), or with exchange RENAME_EXCHANGE.
func (t *tree) renamed(from *node, oldName string, to *node, newName string, exchange bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, m := from.children[oldName], to.children[newName]
	if n == m {
		return // two names of one file: rename(2) does nothing
	}
	if n != nil {
		t.loseName(n, from, oldName)
	}
	if m != nil {
		t.loseName(m, to, newName)
	}
	if n != nil {
		t.addName(n, to, newName)
	}
	if m != nil && exchange {
		t.addName(m, from, oldName)
	}
}

// forget takes back what the kernel was told of a node.
func (t *tree) forget(id, lookups uint64) {
	defer t.closings.relieve()
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byID[id]
	if n == nil {
		return
	}
	n.lookups -= min(lookups, n.lookups)
	if t.dropUnused(n); !n.forgotten {
		t.ledger.note(t, n)
	}
}

// pin keeps n, and its anchor if it has one, until unpin.
func (t *tree) pin(n *node) {
	t.mu.Lock()
	n.pins++
	t.mu.Unlock()
}

// anchorOf is the anchor of a node that is pinned, or -1.
func (t *tree) anchorOf(n *node) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.fd
}

func (t *tree) unpin(n *node) {
	t.release(n)
	t.closings.relieve()
}

// release is unpin for who waits for nothing: it closes no descriptor.
func (t *tree) release(n *node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.pins--
	t.dropUnused(n)
	if n.spare && n.pins == 0 && len(n.names) > 0 {
		n.spare = false
		t.dropAnchor(n, t.closings.add)
	}
}

// REQUIRES: mu held.
func (t *tree) dropUnused(n *node) {
	if n.lookups > 0 || n.pins > 0 {
		return
	}
	for len(n.names) > 0 {
		t.dropName(n, n.names[0].dir, n.names[0].name)
	}
	for name, c := range n.children {
		t.dropName(c, n, name)
	}
	if t.byKey[n.key] == n {
		delete(t.byKey, n.key)
	}
	delete(t.byID, n.id)
	n.forgotten = true
	t.ledger.note(t, n)
	t.setFile(n, "")
	t.dropAnchor(n, t.closings.add)
}

// nameOf is the newest name of n, with its directory pinned; ok is false when
// n has none. more says that there are others.
func (t *tree) nameOf(n *node) (l dirName, more, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(n.names) == 0 {
		return dirName{}, false, false
	}
	l = n.names[len(n.names)-1]
	l.dir.pins++
	return l, len(n.names) > 1, true
}

// isCalledOnly reports whether n has this name here, and no other one.
func (t *tree) isCalledOnly(n, dir *node, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(n.names) == 1 && n.names[0].dir == dir && n.names[0].name == name
}

// listed notes which directories a listing has shown to have the name that they have here.
func (t *tree) listed(dir *node, x *dirList) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, now := range x.names {
		if n := dir.children[name]; n != nil && n.isDir() && n.key == (fileKey{dir.key.dev, now.ino}) {
			n.seen.name.Store(x.gen + 1)
		}
	}
}

// namesOf are all names of n, with their directories pinned.
func (t *tree) namesOf(n *node) []dirName {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := append([]dirName(nil), n.names...)
	for _, l := range all {
		l.dir.pins++
	}
	return all
}

// size is the number of nodes.
func (t *tree) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// maxDepth bounds the walk to the root. The kernel lets a path be longer, in
// steps; such a file is known by the end of its path.
const maxDepth = 4096

// pathTo is the path of n relative to the root, without a leading slash. The
// root is ".". A node without a name keeps the last path that it had.
func (t *tree) pathTo(n *node) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pathOf(n)
}

// REQUIRES: mu held.
func (t *tree) pathOf(n *node) string {
	if n == t.root {
		return "."
	}
	if n.pathGen == t.gen || len(n.names) == 0 {
		return n.path
	}
	var parts []string
	length := 0
	for p := n; p != t.root && len(p.names) > 0 && len(parts) < maxDepth; {
		l := p.names[len(p.names)-1]
		parts = append(parts, l.name)
		length += len(l.name) + 1
		p = l.dir
	}
	var b strings.Builder
	b.Grow(length)
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteString(parts[i])
		if i > 0 {
			b.WriteByte('/')
		}
	}
	n.path, n.pathGen = b.String(), t.gen
	return n.path
}

// callUnnamed gives a file that has no name a path, for the rules and for
// people, until it gets one.
func (t *tree) callUnnamed(n *node, path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(n.names) == 0 {
		n.path = path
		t.ledger.note(t, n)
	}
}

// join is the path of name in dir.
func (t *tree) join(dir *node, name string) string {
	d := t.pathTo(dir)
	if d == "." {
		return name
	}
	return d + "/" + name
}

// close closes the descriptors of all nodes.
func (t *tree) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.anchors.nodes) > 0 {
		t.dropAnchor(t.anchors.nodes[0], closeFD)
	}
	unix.Close(t.root.fd)
	t.closings.wait(nil)
}

func (t *tree) unpinAll(lists ...[]*node) {
	for _, ns := range lists {
		for _, n := range ns {
			t.unpin(n)
		}
	}
}

func (t *tree) releaseAll(lists ...[]*node) {
	for _, ns := range lists {
		for _, n := range ns {
			t.release(n)
		}
	}
}
