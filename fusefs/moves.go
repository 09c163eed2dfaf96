package fusefs

import (
	"errors"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// Where locks go by path (FileIDPath), a file that gets another name is another
// file for them. Two hosts that know one file by two names would not be kept
// apart. So:
//
//   - A file that is locked, or open with an open lock on another host, is not
//     renamed (EBUSY). The open locks of this host move: they are given up, and
//     the next I/O asks for that of the new name.
//   - A directory is not renamed while a file below it is open here, or locked
//     elsewhere. (That is looked at, not kept so.)
//   - Whoever is granted a lock looks whether the name that was locked still
//     leads to the file, or the file has no name at all any more. If not, there
//     is no lock (ESTALE, for I/O EIO): another host has renamed the file. What
//     the owner has locked before by that name keeps nobody out any more, so it is
//     lost: EIO, until its owner unlocks it or closes the file.

// moves are renames where locks go by path.
type moves struct {
	*base
	finder  *finder
	rules   *rules
	yielder *yielder
}

// errMoved is why a lock by path is worth nothing.
var errMoved = unix.ESTALE

// leads reports with errMoved that n has another name than file, what locks
// call it.
func (t *tree) leads(n *node, file string) error {
	path, ok := strings.CutPrefix(file, "p")
	if !t.ids.paths || !ok || !t.hasName(n) {
		return nil
	}
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Fstatat(t.root.fd, path, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err == nil && keyOf(&st) == n.key {
		return nil
	}
	// Whoever has it open calls it so, and nobody else can find it.
	if err = unix.Fstat(n.fd, &st); err == nil && st.Nlink == 0 {
		return nil
	}
	return errMoved
}

// move prepares a rename of what dir calls name to newPath. done is to be called
// when it has taken place, or has failed.
func (m *moves) move(in *fuse.InHeader, dir *node, name, newPath string) (done func(ok bool), st fuse.Status) {
	nothing := func(bool) {}
	if !m.tree.ids.paths {
		return nothing, fuse.OK
	}
	n := m.tree.child(dir, name)
	if n == nil {
		var err error
		if n, _, err = m.finder.find(in, dir, name); err != nil {
			return nothing, fuse.OK // the rename will tell what is wrong
		}
		m.tree.pin(n)
		m.tree.forget(n.id, 1) // the kernel was not told
	}
	if n.isDir() {
		defer m.tree.unpin(n)
		if m.tree.openBelow(n) {
			return nil, fuse.EBUSY
		}
		return nothing, m.lockedBelow(m.tree.pathTo(n))
	}
	if !n.isRegular() {
		m.tree.unpin(n)
		return nothing, fuse.OK
	}
	// By another name that n has, it is another file.
	oldPath := m.tree.join(dir, name)
	file, _ := m.tree.identify(n)
	mine := file == "p"+oldPath
	release, err := m.claim(in, n, oldPath)
	if err == nil && mine && !m.rekey(n, newPath) {
		release()
		err = locks.ErrWouldBlock
	}
	if err != nil {
		m.tree.unpin(n)
		if errors.Is(err, locks.ErrWouldBlock) {
			return nil, fuse.EBUSY
		}
		return nil, lockErrno(err, nil)
	}
	return func(ok bool) {
		if !ok && mine {
			m.rekey(n, oldPath)
		}
		release()
		if len(n.openHandles()) == 0 {
			m.tree.closed(n)
		}
		m.tree.unpin(n)
	}, fuse.OK
}

// lockedBelow is OK if no host has a lock below dir.
func (m *moves) lockedBelow(dir string) fuse.Status {
	if m.opts.LockedBelow == nil {
		return fuse.OK
	}
	locked, err := m.opts.LockedBelow(dir)
	switch {
	case err != nil:
		m.log.Warn("a directory is not renamed: it cannot be known whether files below it are locked", "path", dir, "err", err)
		return fuse.Status(unix.ENOLCK)
	case locked:
		return fuse.EBUSY
	}
	return fuse.OK
}

// claim locks path, which leads to n, for this node in all classes, or tells
// with ErrWouldBlock that somebody has it locked. It does not wait, and is
// blind: the kernel holds the directories meanwhile, so that names in them
// could not be renewed.
func (m *moves) claim(in *fuse.InHeader, n *node, path string) (release func(), err error) {
	p := m.procs.find(in.Pid)
	var held []locks.Request
	release = func() {
		for _, r := range held {
			m.locker.UnlockHandle(r.Key, r.Handle, "the rename is over")
		}
	}
	rule := m.rules.of(n, path)
	for _, c := range locks.Classes {
		id := m.newID()
		r := locks.Request{
			Key: locks.Key{File: "p" + path, Class: c}, Path: path, Owner: locks.OwnerID(id), Handle: locks.HandleID(id),
			Mode: locks.Write, Range: locks.Whole, Try: true, Blind: true, Program: m.procs.program(p, in),
			Waits: m.onWait(in),
		}
		switch { // open locks of the same owner move
		case c != locks.Open:
		case !rule.Open:
			continue
		case !rule.PerProcess:
			r.Owner = sharedOwner
		case p != nil:
			r.Owner = p.owner
		}
		if _, err := m.locker.Lock(nil, &r); err != nil {
			release()
			return nil, err
		}
		held = append(held, r)
	}
	return release, nil
}

// rekey makes locks call n by path, and moves the open locks to it. It is false
// if one is just being asked for.
func (m *moves) rekey(n *node, path string) bool {
	file := "p" + path
	for _, h := range n.openHandles() {
		h.mu.Lock()
		if h.open.state == openWaiting {
			h.mu.Unlock()
			return false
		}
		if h.holds.Load() {
			l := newLeaving(openIdle)
			m.yielder.leaves(h, l)
			h.mu.Unlock()
			m.yielder.letGo(n, l, "the file is renamed")
			<-l.done
			h.mu.Lock()
		}
		h.open.req.Key.File, h.open.req.Path = file, path
		m.ledger.handle(h)
		h.mu.Unlock()
	}
	m.tree.rekey(n, file)
	return true
}

// hasName reports whether n has a name as far as this mount knows.
func (t *tree) hasName(n *node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(n.names) > 0
}

// child is the node that dir calls name, pinned, or nil.
func (t *tree) child(dir *node, name string) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := dir.children[name]
	if n != nil {
		n.pins++
	}
	return n
}

// openBelow reports whether a file below n is open on this host.
func (t *tree) openBelow(n *node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.anyOpen(n, 0)
}

// REQUIRES: mu held.
func (t *tree) anyOpen(n *node, depth int) bool {
	if depth > maxDepth {
		return true
	}
	for _, c := range n.children {
		if c.isDir() {
			if t.anyOpen(c, depth+1) {
				return true
			}
			continue
		}
		c.lockMu.Lock()
		open := len(c.nodeLocks.handles) > 0
		c.lockMu.Unlock()
		if open {
			return true
		}
	}
	return false
}

// rekey makes file what locks call n while it is open.
func (t *tree) rekey(n *node, file string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.file != "" {
		t.setFile(n, file)
	}
}
