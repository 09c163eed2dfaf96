package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// nameCalls serves requests about names, but for those that open files.
type nameCalls struct {
	*base
	attrs   *attrCache
	client  *client
	fence   *fence
	leases  *leases
	finder  *finder
	moves   *moves
	private *private
	retries *retries
	waits   *waits
}

func (nc *nameCalls) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	kind := in.Mode & unix.S_IFMT
	if kind == 0 {
		kind = unix.S_IFREG
	}
	c := change{in: &in.InHeader, op: "mknod", makes: kind, mode: in.Mode}
	return nc.make(cancel, &c, name, out, func(dir *node) error {
		return unix.Mknodat(dir.fd, name, modeIn(nc.acls, dir, in.Mode, in.Umask), int(in.Rdev))
	})
}

func (nc *nameCalls) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	release, st := nc.lockNew(cancel, &in.InHeader, name)
	if !st.Ok() {
		return st
	}
	defer release()
	c := change{in: &in.InHeader, op: "mkdir", makes: unix.S_IFDIR, mode: in.Mode}
	return nc.make(cancel, &c, name, out, func(dir *node) error {
		return nc.makeDir(dir, name, modeIn(nc.acls, dir, in.Mode, in.Umask))
	})
}

func (nc *nameCalls) Symlink(cancel <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	c := change{in: in, op: "symlink", makes: unix.S_IFLNK, target: target}
	return nc.make(cancel, &c, name, out, func(dir *node) error {
		return unix.Symlinkat(target, dir.fd, name)
	})
}

// make makes something that is not open afterwards, as what says.
func (nc *nameCalls) make(cancel <-chan struct{}, what *change, name string, out *fuse.EntryOut, call func(dir *node) error) fuse.Status {
	in, kind := what.in, what.makes
	dir, errno := nc.finder.node(in)
	if !errno.Ok() {
		return errno
	}
	defer nc.tree.unpin(dir)
	if nc.private.hidden(dir, name) {
		return errHidden
	}
	for range createAttempts {
		gen, looked := nc.arrivals.all.Load(), nc.arrivals.explicit.Load()+1
		c := *what
		c.dir, c.name = dir, name
		if err := nc.fence.create(cancel, &c, making(nc.storage.Userspace, dir, name, func() error { return call(dir) })); err != nil {
			nc.client.notMade(dir, err)
			return status(err)
		}
		n, st, err := nc.finder.find(in, dir, name)
		if err == unix.ENOENT {
			continue // another host has removed it in this moment
		}
		if err != nil {
			return status(err)
		}
		if n.kind != kind { // and has put something else there
			nc.tree.forget(n.id, 1) // the kernel is not told
			return fuse.Status(unix.EEXIST)
		}
		if n.isDir() {
			n.seen.name.Store(looked) // nothing else tells that it has the name
		}
		nc.attrs.fillEntry(out, dir, name, n, &st, gen)
		return fuse.OK
	}
	return errStale
}

func (nc *nameCalls) Unlink(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return nc.remove(cancel, in, "unlink", name, 0)
}

func (nc *nameCalls) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return nc.remove(cancel, in, "rmdir", name, unix.AT_REMOVEDIR)
}

func (nc *nameCalls) remove(cancel <-chan struct{}, in *fuse.InHeader, op, name string, flags int) fuse.Status {
	dir, errno := nc.finder.node(in)
	if !errno.Ok() {
		return errno
	}
	defer nc.tree.unpin(dir)
	if nc.private.hidden(dir, name) {
		return fuse.ENOENT
	}
	c := &change{in: in, op: op, dir: dir, name: name, removes: true}
	if c.files[0] = nc.tree.child(dir, name); c.files[0] != nil {
		defer nc.tree.unpin(c.files[0])
	}
	err := nc.untilEmpty(cancel, in, c.files[0], func() error {
		return nc.fence.alter(cancel, c, func() error {
			nc.letDown(c.files[0], false)
			return unix.Unlinkat(dir.fd, name, flags)
		})
	})
	nc.client.notMade(dir, err)
	if err == nil || err == unix.ENOENT {
		nc.tree.gone(dir, name)
		nc.client.mayBeGone(c.files[0])
	}
	return status(err)
}

func (nc *nameCalls) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	from, errno := nc.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	defer nc.tree.unpin(from)
	to, errno := nc.finder.nodeOf(&in.InHeader, in.Newdir)
	if !errno.Ok() {
		return errno
	}
	defer nc.tree.unpin(to)
	if nc.private.hidden(from, oldName) {
		return fuse.ENOENT
	}
	if nc.private.hidden(to, newName) {
		return errHidden
	}
	exchange := in.Flags&unix.RENAME_EXCHANGE != 0
	oldPath, newPath := nc.tree.join(from, oldName), nc.tree.join(to, newName)
	if !nc.movable(from, oldName, oldPath, newPath) || exchange && !nc.movable(to, newName, newPath, oldPath) {
		return fuse.EXDEV
	}
	moved, st := nc.moves.move(&in.InHeader, from, oldName, newPath)
	if !st.Ok() {
		return st
	}
	movedBack := func(bool) {}
	if exchange {
		if movedBack, st = nc.moves.move(&in.InHeader, to, newName, oldPath); !st.Ok() {
			moved(false)
			return st
		}
	}
	if nc.tree.ids.paths {
		defer nc.pause.stay()() // it has locks that only it gives up
	}
	c := &change{in: &in.InHeader, op: "rename", dir: to, name: newName, leave: from, moves: oldName, exchange: exchange,
		whiteout: in.Flags&unix.RENAME_WHITEOUT != 0}
	for i, n := range [...]*node{nc.tree.child(from, oldName), nc.tree.child(to, newName)} {
		if c.files[i] = n; n != nil {
			defer nc.tree.unpin(n)
		}
	}
	renamed := false
	call := func() error {
		if !exchange {
			nc.letDown(c.files[1], true)
		}
		x, y := cachedName{from.id, oldName}, cachedName{to.id, newName}
		nc.leases.renamed(x, y, exchange, false)
		err := unix.Renameat2(from.fd, oldName, to.fd, newName, uint(in.Flags))
		if renamed = err == nil; renamed {
			nc.leases.renamed(x, y, exchange, true)
		}
		return err
	}
	if in.Flags&unix.RENAME_NOREPLACE != 0 {
		call = making(nc.storage.Userspace, to, newName, call)
	}
	nc.awaitClosed(&in.InHeader, c.files[1])
	err := nc.untilEmpty(cancel, &in.InHeader, c.files[1], func() error {
		if in.Flags&unix.RENAME_WHITEOUT != 0 {
			return nc.fence.create(cancel, c, call)
		}
		return nc.fence.alter(cancel, c, call)
	})
	nc.client.notMade(from, err)
	nc.client.notMade(to, err)
	renamed = renamed || c.repeated && err == nil && nc.isToMove(c)
	if renamed { // if late, too
		nc.tree.renamed(from, oldName, to, newName, exchange)
		nc.client.mayBeGone(c.files[1])
	}
	moved(renamed)
	movedBack(renamed)
	return status(err)
}

// movable asks whether the file that is called name in dir may get another path.
func (nc *nameCalls) movable(dir *node, name, oldPath, newPath string) bool {
	if nc.opts.Movable == nil {
		return true
	}
	var st unix.Stat_t
	if unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return true // the call itself will tell what is wrong
	}
	return nc.opts.Movable(oldPath, newPath, st.Mode&unix.S_IFMT == unix.S_IFDIR)
}

func (nc *nameCalls) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	dir, errno := nc.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	defer nc.tree.unpin(dir)
	n, errno := nc.finder.nodeOf(&in.InHeader, in.Oldnodeid)
	if !errno.Ok() {
		return errno
	}
	defer nc.tree.unpin(n)
	if nc.private.hidden(dir, name) {
		return errHidden
	}
	if path := nc.tree.pathTo(n); nc.opts.Movable != nil && path != "" && !nc.opts.Movable(path, nc.tree.join(dir, name), false) {
		return fuse.EXDEV
	}
	gen := nc.arrivals.all.Load()
	// The name in /proc leads to the file itself, also if that is a symbolic
	// link, and to one that has no name yet.
	c := &change{in: &in.InHeader, op: "link", files: [2]*node{n}, dir: dir, name: name, links: n}
	err := nc.fence.alter(cancel, c, making(nc.storage.Userspace, dir, name, func() error {
		return unix.Linkat(nc.fds, itoa(n.fd), dir.fd, name, unix.AT_SYMLINK_FOLLOW)
	}))
	if err != nil {
		nc.client.notMade(dir, err)
		return status(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return status(err)
	}
	nc.tree.linked(n, dir, name)
	nc.attrs.fillEntry(out, dir, name, n, &st, gen)
	return fuse.OK
}

func (nc *nameCalls) Readlink(cancel <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	n, errno := nc.finder.node(in)
	if !errno.Ok() {
		return nil, errno
	}
	defer nc.tree.unpin(n)
	// One byte more than any file system allows, to see that all was read.
	buf := make([]byte, unix.PathMax+1)
	m, err := unix.Readlinkat(n.fd, "", buf)
	if err != nil {
		return nil, status(err)
	}
	if m == len(buf) {
		return nil, fuse.Status(unix.ENAMETOOLONG)
	}
	return buf[:m], fuse.OK
}
