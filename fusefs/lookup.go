package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func (f *fileSystem) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	dir, errno := f.node(in)
	if !errno.Ok() {
		return errno
	}
	defer f.tree.unpin(dir)
	if f.private.hidden(dir, name) {
		return fuse.ENOENT
	}
	f.letPass(in)
	gen := f.arrivals.refreshGen.Load()
	n, st, err := f.find(in, dir, name)
	if err != nil {
		f.endsRetry(in)
		if err == unix.ENOENT {
			f.tree.gone(dir, name)
		}
		// Never an entry that says that there is nothing: another host may
		// make the file at any moment.
		return status(err)
	}
	f.waits.looksUp(n, in.Pid)
	f.attrs.fillEntry(out, dir, name, n, &st, gen)
	return fuse.OK
}

// find looks a name up on the storage, and counts a lookup of the node. dir is
// pinned and has its anchor. What programs do not get at is an error.
func (f *fileSystem) find(in *fuse.InHeader, dir *node, name string) (*node, unix.Stat_t, error) {
	if dir.cluster.Load() < 0 {
		return nil, unix.Stat_t{}, unix.EIO // who was in it before
	}
	n, st, err := f.findAny(in, dir, name)
	if err != nil {
		return n, st, err
	}
	switch {
	case f.private.isPrivate(&st):
		err = unix.ENOENT
	case f.private.foreign(dir, name, n):
		err = unix.EIO
	default:
		return n, st, nil
	}
	f.tree.forget(n.id, 1)
	return nil, st, err
}

func (f *fileSystem) findAny(in *fuse.InHeader, dir *node, name string) (n *node, st unix.Stat_t, err error) {
	for range passTries {
		n, st, err = f.findNow(in, dir, name)
		if err != unix.ENOENT {
			break
		}
		// Another host, or program, may just have put another file there.
		kept := f.storage.KeepsNames && n != nil
		if kept {
			f.client.forceLookup(dir, name)
		}
		if !kept && !f.storage.Lingers || unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			break
		}
		if !kept {
			f.client.forceLookup(dir, name)
		}
	}
	return n, st, err
}

func (f *fileSystem) findNow(in *fuse.InHeader, dir *node, name string) (*node, unix.Stat_t, error) {
	_ = f.client.lookAt(dir)
	f.client.passName(dir, name)
	var st unix.Stat_t
	err := f.actor.allowed(in, func() error { return unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return nil, st, err
	}
	n := f.tree.seen(dir, name, &st)
	used := n != nil && f.storage.Remote && f.staleAnchor(n)
	if n != nil && !used {
		if err := f.lookFound(n, &st); err != nil {
			return n, st, err
		}
		if used = f.client.isReplaced(n, &st); !used {
			return n, st, nil
		}
	}
	if used {
		f.tree.forget(n.id, 1)
	}
	fd, err := f.openPath(in, dir.fd, name)
	if err != nil {
		return nil, st, err
	}
	if err := unix.Fstat(fd, &st); err != nil { // it may be another file now
		closeFD(fd)
		return nil, st, err
	}
	n = f.enterNode(dir, name, fd, &st, used)
	return n, st, f.lookFound(n, &st)
}

// lookFound brings what a lookup has found out about n up to date. It may find
// that the client knows a name of which there is no file any more; then the
// lookup does not count.
func (f *fileSystem) lookFound(n *node, st *unix.Stat_t) error {
	if !f.client.isOld(n) {
		return nil
	}
	f.tree.pin(n)
	defer f.tree.unpin(n)
	fd := f.tree.anchorOf(n)
	if fd < 0 {
		return nil // the request that follows sets it again, and looks
	}
	if f.client.lookAt(n) != nil {
		n.distrust() // the client would go on with that name until it is asked for the file
		f.tree.forget(n.id, 1)
		return unix.ENOENT
	}
	var now unix.Stat_t
	if unix.Fstat(fd, &now) == nil {
		*st = now
	}
	return nil
}

// enterNode is tree.add for a file that may be in another file system than dir.
func (f *fileSystem) enterNode(dir *node, name string, fd int, st *unix.Stat_t, replace bool) *node {
	if dev := uint64(st.Dev); dev != dir.key.dev {
		f.devices.crossed(dev, f.tree.join(dir, name))
	}
	return f.tree.add(dir, name, fd, st, replace)
}

// staleAnchor reports whether the file of a node is gone from a remote
// storage, which may then use its inode number again. On a local file system
// the anchor keeps that from happening.
func (f *fileSystem) staleAnchor(n *node) bool {
	f.tree.pin(n)
	defer f.tree.unpin(n)
	fd := f.tree.anchorOf(n)
	var st unix.Stat_t
	return fd >= 0 && unix.Fstat(fd, &st) == unix.ESTALE
}

// openPath opens a name without following it and without permissions to do
// anything: an anchor of the file.
func (f *fileSystem) openPath(in *fuse.InHeader, dir int, name string) (int, error) {
	return f.descriptors.withReserve(func() (fd int, err error) {
		err = f.actor.allowed(in, func() (err error) {
			fd, err = unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			return err
		})
		return fd, err
	})
}

func (f *fileSystem) Forget(id, lookups uint64) { f.tree.forget(id, lookups) }
