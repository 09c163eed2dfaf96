package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Create makes a regular file and opens it. The kernel has just been told that
// there is none.
//
// It holds the lock of the directory meanwhile, and nothing can end the wait
// of others for that. So this never waits for an open lock: the new file's is
// asked for in the background, and the first I/O waits for it.
func (f *fileSystem) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	dir := f.tree.get(in.NodeId)
	if dir == nil {
		return errStale
	}
	if f.hidden(dir, name) {
		return errHidden
	}
	gen := f.refreshGen.Load()
	mode := f.modeIn(dir, in.Mode, in.Umask)
	flags := int(in.Flags)&keptFlags | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd := -1
	err := f.withRoom(func() error {
		return f.create(&in.InHeader, func() (err error) {
			fd, err = unix.Openat(dir.fd, name, flags, mode)
			return err
		})
	})
	if err == unix.EEXIST && in.Flags&unix.O_EXCL == 0 {
		// Another host was faster. The kernel has to find the file and open
		// it as one that exists: with a look at its permissions, and with a
		// wait for its lock that leaves the directory alone.
		return errStale
	}
	if err != nil {
		return status(err)
	}
	n, st, err := f.anchor(dir, name, fd)
	if err != nil {
		closeFD(fd)
		return status(err)
	}
	f.keepSetGID(fd, mode, &st)
	f.fillEntry(&out.EntryOut, dir, name, n, &st, gen)
	f.opened(n, fd, in, &out.OpenOut)
	return fuse.OK
}

// Tmpfile makes a file without a name and opens it (O_TMPFILE). It may get a
// name by linkat(2) later.
func (f *fileSystem) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	dir := f.tree.get(in.NodeId)
	if dir == nil {
		return errStale
	}
	mode := f.modeIn(dir, in.Mode, in.Umask)
	flags := int(in.Flags)&(keptFlags|unix.O_EXCL) | unix.O_TMPFILE | unix.O_CLOEXEC
	fd := -1
	err := f.withRoom(func() error {
		return f.create(&in.InHeader, func() (err error) {
			fd, err = unix.Openat(dir.fd, ".", flags, mode)
			return err
		})
	})
	if err != nil {
		return status(err)
	}
	n, st, err := f.anchor(nil, "", fd)
	if err != nil {
		closeFD(fd)
		return status(err)
	}
	f.keepSetGID(fd, mode, &st)
	out.NodeId, out.Generation = n.id, 1
	f.fillAttr(&out.Attr, &st)
	f.opened(n, fd, in, &out.OpenOut)
	return fuse.OK
}

// anchor makes the node of a file that was just made and is open as fd.
func (f *fileSystem) anchor(dir *node, name string, fd int) (*node, unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, st, err
	}
	path := -1
	err := f.withRoom(func() (err error) {
		path, err = unix.Openat(f.fds, itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, st, err
	}
	f.watchRoom(path)
	// A node of this identity would be of a file that is gone.
	return f.tree.add(dir, name, path, &st, f.storage.Remote), st, nil
}

// opened makes the handle of a new file, whose open lock is asked for but not
// waited for.
func (f *fileSystem) opened(n *node, fd int, in *fuse.CreateIn, out *fuse.OpenOut) {
	h := f.newHandle(n, in.Flags, false, &in.InHeader)
	h.fd = fd
	lock := h.open.state == openWaiting
	f.attach(h, h.open.state)
	if lock {
		h.mu.Lock()
		f.lockLater(h)
		h.mu.Unlock()
	}
	f.serve(h)
	out.Fh = h.id
}

// modeIn is the mode of a new file. The umask counts only where the directory
// has no default ACL (acl(5), "Object creation and default ACLs"); the daemon
// has none of its own.
func (f *fileSystem) modeIn(dir *node, mode, umask uint32) uint32 {
	if f.acls {
		if _, err := unix.Getxattr(fdPath(dir.fd), aclDefault, nil); err == nil {
			return mode
		}
	}
	return mode &^ umask
}

// keepSetGID restores the setgid bit of a new file. The kernel has decided
// that the program may set it, perhaps because of a supplementary group that
// the storage did not know of.
func (f *fileSystem) keepSetGID(fd int, mode uint32, st *unix.Stat_t) {
	if mode&unix.S_ISGID != 0 && st.Mode&unix.S_ISGID == 0 {
		if unix.Fchmod(fd, st.Mode&07777|unix.S_ISGID) == nil {
			st.Mode |= unix.S_ISGID
		}
	}
}
