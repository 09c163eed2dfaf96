package fusefs

import "sync/atomic"

// What a ledger has of nodes and their names.

// nodeLine is where the ledger has a node. It is made with the node, and belongs to the
// ledger, whose mu guards the fields.
type nodeLine struct {
	l          *ledger
	number     uint32
	w          [nodeWords]uint64
	file, path string
	pages      atomic.Bool  // it says that there may be pages
	most       atomic.Int64 // what it says of sizeBounds.most; -1: that is being written
}

// note writes down what n is. REQUIRES: tree.mu held.
func (l *ledger) note(t *tree, n *node) {
	if l == nil {
		return
	}
	k := n.line
	if k == nil {
		if n.forgotten {
			return
		}
		k = &nodeLine{l: l}
		n.line = k
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.forgotten {
		l.remove(tableNodes, &k.number)
		return
	}
	was := k.w
	w := &k.w
	if w[nodeID] == 0 {
		w[nodeID], w[nodeDev], w[nodeIno] = n.id, n.key.dev, n.key.ino
	}
	const others = nodeTold | nodeOwed | nodePages
	w[nodeFlags] = w[nodeFlags]&others | uint64(n.kind)
	if t.byKey[n.key] == n {
		w[nodeFlags] |= nodePrimary
	}
	if n.spare {
		w[nodeFlags] |= nodeSpare
	}
	if n.replaced.Load() {
		w[nodeFlags] |= nodeReplaced
	}
	w[nodeFD], w[nodeLookups] = fdWord(n.fd), n.lookups
	if w[nodeMost] == 0 {
		defer k.most.Store(k.takeMost(n))
	}
	if k.file != n.file {
		k.file = n.file
		w[nodeFile] = l.text(n.file)
	}
	path := ""
	if len(n.names) == 0 && n != t.root {
		path = n.path
	}
	if k.path != path {
		k.path = path
		w[nodePath] = l.pathText(path)
	}
	if was != *w || k.number == 0 {
		l.write(tableNodes, &k.number, w[:])
	}
}

// replaced writes down that another file has taken the place of n.
func (l *ledger) replaced(t *tree, n *node) {
	if l == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l.note(t, n)
}

// name writes down the newest name of n. REQUIRES: tree.mu held.
func (l *ledger) name(n *node) {
	if l == nil {
		return
	}
	name := &n.names[len(n.names)-1]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(tableNames, &name.line, []uint64{l.text(name.name), n.id, name.dir.id})
}

// forgetName takes a name out. REQUIRES: tree.mu held.
func (l *ledger) forgetName(name *dirName) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(tableNames, &name.line)
}

// noteUnwritten writes down what became of the data of n.
func (n *node) noteUnwritten() {
	k, u := n.line, &n.unwritten
	if k == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	w := &k.w
	w[nodeFailures], w[nodePageFailures], w[nodeError] = u.count.Load(), u.pages.Load(), errnoWord(u.err)
	if w[nodeFlags] &^= nodeTold | nodeOwed; u.told {
		w[nodeFlags] |= nodeTold
	}
	if u.owed {
		w[nodeFlags] |= nodeOwed
	}
	k.change()
}

// notePages writes down that the kernel may have pages of n.
func (n *node) notePages() {
	k := n.line
	if k == nil || k.pages.Load() {
		return
	}
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.w[nodeFlags] |= nodePages
	k.change()
	k.pages.Store(true)
}

// noteMost writes down how long the kernel may believe n to be.
func (n *node) noteMost() {
	k := n.line
	if k == nil || !n.isRegular() {
		return
	}
	if most := k.most.Load(); most >= 0 && n.bounds.most.Load() <= most {
		return
	}
	k.writeMost(n)
}

// noteCut is noteMost where it may be less than before.
func (n *node) noteCut() {
	k := n.line
	if k != nil && n.bounds.most.Load() != k.most.Load() {
		k.writeMost(n)
	}
}

func (k *nodeLine) writeMost(n *node) {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	most := k.takeMost(n)
	k.change()
	k.most.Store(most)
}

// takeMost is about the word alone, which the caller writes, and then stores what it returns in
// k.most. Who makes it more from now on finds that it has to be written, and waits; so does who needs
// what is being written. REQUIRES: ledger.mu held.
func (k *nodeLine) takeMost(n *node) int64 {
	k.most.Store(-1)
	most := n.bounds.most.Load()
	k.w[nodeMost] = uint64(most)
	return most
}

// change writes k, if the node was not forgotten. REQUIRES: ledger.mu held.
func (k *nodeLine) change() {
	if k.number != 0 {
		k.l.write(tableNodes, &k.number, k.w[:])
	}
}

// beginTree writes down all nodes.
func (l *ledger) beginTree(t *tree) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.byID {
		l.note(t, n)
		for i := range n.names {
			x := &n.names[i]
			l.mu.Lock()
			l.write(tableNames, &x.line, []uint64{l.text(x.name), n.id, x.dir.id})
			l.mu.Unlock()
		}
	}
	for _, n := range t.byID {
		if n.cached.Load() {
			n.notePages()
		}
		if n.unwritten.count.Load()+n.unwritten.pages.Load() > 0 {
			n.noteUnwritten()
		}
	}
	l.reserve(nodeIDs, t.last)
}
