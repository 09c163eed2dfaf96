package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func (f *fileSystem) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	kind := in.Mode & unix.S_IFMT
	if kind == 0 {
		kind = unix.S_IFREG
	}
	return f.make(cancel, &in.InHeader, "mknod", name, kind, out, func(dir *node) error {
		return unix.Mknodat(dir.fd, name, f.modeIn(dir, in.Mode, in.Umask), int(in.Rdev))
	})
}

func (f *fileSystem) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	release, st := f.lockNew(cancel, &in.InHeader, name)
	if !st.Ok() {
		return st
	}
	defer release()
	return f.make(cancel, &in.InHeader, "mkdir", name, unix.S_IFDIR, out, func(dir *node) error {
		return f.makeDir(dir, name, f.modeIn(dir, in.Mode, in.Umask))
	})
}

func (f *fileSystem) Symlink(cancel <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return f.make(cancel, in, "symlink", name, unix.S_IFLNK, out, func(dir *node) error {
		return unix.Symlinkat(target, dir.fd, name)
	})
}

// make makes something of a kind that is not open afterwards.
func (f *fileSystem) make(cancel <-chan struct{}, in *fuse.InHeader, op, name string, kind uint32, out *fuse.EntryOut, call func(dir *node) error) fuse.Status {
	dir, errno := f.finder.node(in)
	if !errno.Ok() {
		return errno
	}
	defer f.tree.unpin(dir)
	if f.private.hidden(dir, name) {
		return errHidden
	}
	for range createAttempts {
		gen := f.arrivals.refreshGen.Load()
		if err := f.fence.create(cancel, &change{in: in, op: op, dir: dir, name: name}, f.making(dir, name, func() error { return call(dir) })); err != nil {
			f.client.notMade(dir, err)
			return status(err)
		}
		n, st, err := f.finder.find(in, dir, name)
		if err == unix.ENOENT {
			continue // another host has removed it in this moment
		}
		if err != nil {
			return status(err)
		}
		if n.kind != kind { // and has put something else there
			f.tree.forget(n.id, 1) // the kernel is not told
			return fuse.Status(unix.EEXIST)
		}
		f.attrs.fillEntry(out, dir, name, n, &st, gen)
		return fuse.OK
	}
	return errStale
}

func (f *fileSystem) Unlink(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return f.remove(cancel, in, "unlink", name, 0)
}

func (f *fileSystem) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return f.remove(cancel, in, "rmdir", name, unix.AT_REMOVEDIR)
}

func (f *fileSystem) remove(cancel <-chan struct{}, in *fuse.InHeader, op, name string, flags int) fuse.Status {
	dir, errno := f.finder.node(in)
	if !errno.Ok() {
		return errno
	}
	defer f.tree.unpin(dir)
	if f.private.hidden(dir, name) {
		return fuse.ENOENT
	}
	c := &change{in: in, op: op, dir: dir, name: name}
	if c.files[0] = f.tree.child(dir, name); c.files[0] != nil {
		defer f.tree.unpin(c.files[0])
	}
	err := f.fence.alter(cancel, c, func() error { return unix.Unlinkat(dir.fd, name, flags) })
	if err == nil || err == unix.ENOENT {
		f.tree.gone(dir, name)
	}
	return status(err)
}

func (f *fileSystem) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	from, errno := f.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	defer f.tree.unpin(from)
	to, errno := f.finder.nodeOf(&in.InHeader, in.Newdir)
	if !errno.Ok() {
		return errno
	}
	defer f.tree.unpin(to)
	if f.private.hidden(from, oldName) {
		return fuse.ENOENT
	}
	if f.private.hidden(to, newName) {
		return errHidden
	}
	exchange := in.Flags&unix.RENAME_EXCHANGE != 0
	oldPath, newPath := f.tree.join(from, oldName), f.tree.join(to, newName)
	if !f.movable(from, oldName, oldPath, newPath) || exchange && !f.movable(to, newName, newPath, oldPath) {
		return fuse.EXDEV
	}
	moved, st := f.move(&in.InHeader, from, oldName, newPath)
	if !st.Ok() {
		return st
	}
	movedBack := func(bool) {}
	if exchange {
		if movedBack, st = f.move(&in.InHeader, to, newName, oldPath); !st.Ok() {
			moved(false)
			return st
		}
	}
	c := &change{in: &in.InHeader, op: "rename", dir: to, name: newName, leave: from}
	for i, n := range [...]*node{f.tree.child(from, oldName), f.tree.child(to, newName)} {
		if c.files[i] = n; n != nil {
			defer f.tree.unpin(n)
		}
	}
	renamed := false
	call := func() error {
		err := unix.Renameat2(from.fd, oldName, to.fd, newName, uint(in.Flags))
		renamed = err == nil
		return err
	}
	if in.Flags&unix.RENAME_NOREPLACE != 0 {
		call = f.making(to, newName, call)
	}
	var err error
	if in.Flags&unix.RENAME_WHITEOUT != 0 {
		err = f.fence.create(cancel, c, call)
	} else {
		err = f.fence.alter(cancel, c, call)
	}
	if renamed { // if late, too
		f.tree.renamed(from, oldName, to, newName, exchange)
	}
	moved(renamed)
	movedBack(renamed)
	return status(err)
}

// movable asks whether the file that is called name in dir may get another path.
func (f *fileSystem) movable(dir *node, name, oldPath, newPath string) bool {
	if f.opts.Movable == nil {
		return true
	}
	var st unix.Stat_t
	if unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return true // the call itself will tell what is wrong
	}
	return f.opts.Movable(oldPath, newPath, st.Mode&unix.S_IFMT == unix.S_IFDIR)
}

func (f *fileSystem) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	dir, errno := f.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	defer f.tree.unpin(dir)
	n, errno := f.finder.nodeOf(&in.InHeader, in.Oldnodeid)
	if !errno.Ok() {
		return errno
	}
	defer f.tree.unpin(n)
	if f.private.hidden(dir, name) {
		return errHidden
	}
	if path := f.tree.pathTo(n); f.opts.Movable != nil && path != "" && !f.opts.Movable(path, f.tree.join(dir, name), false) {
		return fuse.EXDEV
	}
	gen := f.arrivals.refreshGen.Load()
	// The name in /proc leads to the file itself, also if that is a symbolic
	// link, and to one that has no name yet.
	c := &change{in: &in.InHeader, op: "link", files: [2]*node{n}, dir: dir, name: name}
	err := f.fence.alter(cancel, c, f.making(dir, name, func() error {
		return unix.Linkat(f.fds, itoa(n.fd), dir.fd, name, unix.AT_SYMLINK_FOLLOW)
	}))
	if err != nil {
		f.client.notMade(dir, err)
		return status(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return status(err)
	}
	f.tree.linked(n, dir, name)
	f.attrs.fillEntry(out, dir, name, n, &st, gen)
	return fuse.OK
}

func (f *fileSystem) Readlink(cancel <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	n, errno := f.finder.node(in)
	if !errno.Ok() {
		return nil, errno
	}
	defer f.tree.unpin(n)
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
