package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func (nc *nameCalls) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	dir, errno := nc.finder.node(in)
	if !errno.Ok() {
		return errno
	}
	defer nc.tree.unpin(dir)
	if nc.private.hidden(dir, name) {
		return fuse.ENOENT
	}
	nc.retries.letPass(in)
	since := nc.leases.look()
	n, st, err := nc.finder.find(in, dir, name)
	if err != nil {
		nc.retries.endsRetry(in)
		if err == unix.ENOENT {
			nc.tree.gone(dir, name)
			// Otherwise never an entry that says that there is nothing: another
			// host may make the file at any moment.
			if nc.attrs.keepNone(in, out, dir, name, since) {
				return fuse.OK
			}
		}
		return status(err)
	}
	nc.waits.looksUp(n, in.Pid)
	nc.attrs.keepEntry(in, out, dir, name, n, &st, since)
	return fuse.OK
}

// find looks a name up on the storage, and counts a lookup of the node. dir is
// pinned and has its anchor. What programs do not get at is an error.
func (fr *finder) find(in *fuse.InHeader, dir *node, name string) (*node, unix.Stat_t, error) {
	if dir.cluster.Load() < 0 {
		return nil, unix.Stat_t{}, unix.EIO // who was in it before
	}
	n, st, err := fr.findAny(in, dir, name)
	if err != nil {
		return n, st, err
	}
	switch {
	case fr.private.isPrivate(&st):
		err = unix.ENOENT
	case fr.private.foreign(dir, name, n):
		err = unix.EIO
	default:
		return n, st, nil
	}
	fr.tree.forget(n.id, 1)
	return nil, st, err
}

func (fr *finder) findAny(in *fuse.InHeader, dir *node, name string) (n *node, st unix.Stat_t, err error) {
	for range passTries {
		n, st, err = fr.findNow(in, dir, name)
		if err != unix.ENOENT {
			break
		}
		// Another host, or program, may just have put another file there.
		kept := (fr.storage.KeepsNames || fr.storage.NamesByTime) && n != nil
		if kept {
			fr.client.forceLookup(dir, name)
		}
		if !kept && !fr.storage.Lingers || unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			break
		}
		if !kept {
			fr.client.forceLookup(dir, name)
		}
	}
	return n, st, err
}

func (fr *finder) findNow(in *fuse.InHeader, dir *node, name string) (*node, unix.Stat_t, error) {
	if fr.client.lookAt(dir) != nil && fr.storage.NamesByTime {
		return nil, unix.Stat_t{}, unix.ESTALE // the kernel looks the path up again, and finds the one in its place
	}
	fr.client.passName(dir, name)
	var st unix.Stat_t
	look := func() error { return unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) }
	err := fr.actor.allowed(in, look)
	if err == unix.ENOENT && fr.client.askOf(dir) {
		err = fr.actor.allowed(in, look)
	}
	if err != nil {
		return nil, st, err
	}
	n := fr.tree.seen(dir, name, &st)
	gone := n // the number of its file is that of another one now
	switch {
	case n == nil:
	case !fr.storage.Remote || !fr.staleAnchor(n):
		if err := fr.lookFound(n, &st); err != nil {
			return n, st, err
		}
		if !fr.client.isReplaced(n, &st) {
			return n, st, nil
		}
		fallthrough
	default:
		fr.tree.forget(n.id, 1)
	}
	fd, err := fr.openPath(in, dir.fd, name)
	if err != nil {
		return nil, st, err
	}
	if err := unix.Fstat(fd, &st); err != nil { // it may be another file now
		closeFD(fd)
		return nil, st, err
	}
	n = fr.enterNode(dir, name, fd, &st, gone)
	return n, st, fr.lookFound(n, &st)
}

// lookFound brings what a lookup has found out about n up to date. It may find
// that the client knows a name of which there is no file any more; then the
// lookup does not count.
func (fr *finder) lookFound(n *node, st *unix.Stat_t) error {
	if !fr.client.isOld(n) {
		return nil
	}
	fr.tree.pin(n)
	defer fr.tree.unpin(n)
	fd := fr.tree.anchorOf(n)
	if fd < 0 {
		return nil // the request that follows sets it again, and looks
	}
	if fr.client.lookAt(n) != nil {
		n.distrust() // the client would go on with that name until it is asked for the file
		fr.tree.forget(n.id, 1)
		return unix.ENOENT
	}
	var now unix.Stat_t
	if unix.Fstat(fd, &now) == nil {
		*st = now
	}
	return nil
}

// distrustPath is called before the kernel is told that a file or directory is
// stale, and looks its path up again: each directory on it is looked at then.
func (fr *finder) distrustPath(id uint64) {
	if !fr.storage.NamesByTime {
		return
	}
	t := fr.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byID[id]
	for depth := 0; n != nil && n != t.root && depth < maxDepth; depth++ {
		n.seen.until.Store(0)
		if len(n.names) == 0 {
			return
		}
		n = n.names[len(n.names)-1].dir
	}
}

// enterNode is tree.add for a file that may be in another file system than dir.
func (fr *finder) enterNode(dir *node, name string, fd int, st *unix.Stat_t, gone *node) *node {
	if dev := uint64(st.Dev); dev != dir.key.dev {
		fr.devices.crossed(dev, fr.tree.join(dir, name))
	}
	return fr.tree.add(dir, name, fd, st, gone)
}

func (nc *nameCalls) Forget(id, lookups uint64) { nc.tree.forget(id, lookups) }

// anchor makes the node of a file that was just made and is open as fd.
func (fr *finder) anchor(dir *node, name string, fd int) (*node, unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, st, err
	}
	path, err := fr.descriptors.withReserve(func() (int, error) {
		return unix.Openat(fr.fds, itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, st, err
	}
	var gone *node
	if fr.storage.Remote {
		gone = fr.tree.known(&st)
	}
	return fr.tree.add(dir, name, path, &st, gone), st, nil
}

// verifyName answers ESTALE if a name of n does not lead to it any more: the
// kernel may have come by that one. It keeps names for a while, and meanwhile
// another host may have removed the file or put another one in its place. The
// name is forgotten then, so that a file which is reached without a name (by
// /proc/PID/fd, say) is refused once at most. If it is clear which name the
// kernel came by, it is in moved.
func (fr *finder) verifyName(in *fuse.InHeader, n *node) (st unix.Stat_t, moved []dirName, err error) {
	l, more, ok := fr.tree.nameOf(n)
	if !ok {
		err = retryEINTR(func() error { return unix.Fstat(n.fd, &st) })
		return st, nil, err
	}
	names := []dirName{l}
	if more {
		fr.tree.unpin(l.dir)
		names = fr.tree.namesOf(n)
	}
	for _, l := range names {
		var at unix.Stat_t
		e := fr.anchorAgain(in, l.dir)
		if e == nil {
			fr.client.lookForNames(l.dir, l.name)
			e = retryEINTR(func() error { return unix.Fstatat(l.dir.fd, l.name, &at, unix.AT_SYMLINK_NOFOLLOW) })
		}
		switch {
		case e == unix.ENOENT || e == unix.ESTALE || e == nil && keyOf(&at) != n.key:
			fr.tree.unname(n, l)
			moved = append(moved, l)
			err = unix.ESTALE
		case e != nil && e != unix.EACCES:
			err = e
		default:
			st = at
		}
		fr.tree.unpin(l.dir)
	}
	if err == nil && st.Ino == 0 { // the daemon may not look there
		err = retryEINTR(func() error { return unix.Fstat(n.fd, &st) })
	}
	return st, moved, err
}
