package fusefs

import (
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A client that lingers (Storage.Lingers) answers from caches of its own for
// the rest of a second, whatever the kernel was told to force. It is GlusterFS
// with its defaults, where
//
//   - md-cache answers GETATTR and LOOKUP for up to a second. Neither open(2)
//     nor a lock ends that; the answers to fsync(2) and to fallocate(2) renew the
//     attributes, and an error that says that the file is gone ends it.
//   - quick-read serves files of up to 64 KiB from what an earlier LOOKUP
//     brought. It ignores O_DIRECT, open(2) and fsync(2), and forgets the file
//     when it passes on a fallocate(2), even one that fails.
//
// So fallocate(2) does both. (fsync(2) costs as much again, or more: the server may
// have to write its journal.)
//
// So the functions here make it ask, where a lock that came from another host,
// or an open(2), needs it. Both caches compare whole seconds: what was cached
// before a second began is never used in it, which is the way where there is
// no other.

// farOff is behind the end of a file of less than maxNear bytes, however much
// is written to it meanwhile; neverOff behind that of any. The hole changes
// nothing, and with features.ctime, which is the default, no time either. A
// server that says EFBIG has the client log that, so that it is not neverOff
// always.
//
// A dispersed volume punches whole stripes, of 512 bytes for each brick that
// has data, and writes zeros where a hole begins or ends in one. So the hole
// is of whole stripes for any number of such bricks up to 16.
const (
	maxNear  = 1 << 42
	stripes  = 512 * 720720
	farOff   = (1 << 43) / stripes * stripes
	neverOff = (1 << 62) / stripes * stripes
)

// pass makes a client that lingers fetch the attributes of a file, and forget
// its data. It answers ENOENT or ESTALE if the file is gone. n is pinned and
// has its anchor.
func (c *client) pass(n *node) error {
	if !c.storage.Lingers || !n.isRegular() {
		return nil
	}
	fd, err := c.descriptors.withReserve(func() (int, error) { return c.openNode(n, unix.O_RDWR|unix.O_NONBLOCK) })
	if err == nil {
		err = punchBehind(fd)
		closeFD(fd)
	}
	switch err {
	case nil, unix.ENOENT, unix.ESTALE:
		return err
	}
	c.outlast() // it cannot be written to
	return nil
}

func punchBehind(fd int) error {
	st, err := attrOf(fd, unix.AT_STATX_FORCE_SYNC)
	if err != nil {
		return err
	}
	off := int64(farOff)
	if st.size >= maxNear {
		off = neverOff
	}
	const hole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	err = retryEINTR(func() error { return unix.Fallocate(fd, hole, off, stripes) })
	if err == unix.EFBIG {
		return retryEINTR(func() error { return unix.Fsync(fd) }) // it was passed on, and brought no attributes
	}
	return err
}

// outlast waits until what a client that lingers has cached is not used any
// more, if that is from before the last lock came here.
func (c *client) outlast() {
	if t := c.arrivals.last.Load(); t != nil {
		time.Sleep(lingers(*t) - time.Since(*t))
	}
}

// lingers is how long what was cached at a time may be used: to the end of that
// second, and a little, since the client's clock can be a tick behind.
func lingers(since time.Time) time.Duration {
	return time.Second - time.Duration(since.Nanosecond()) + 20*time.Millisecond
}

// passName makes a client that lingers look a name up. dir is pinned and has
// its anchor.
//
// A file that was replaced or removed says so itself when it is asked for what
// is in no cache; one that has another name now says which.
func (c *client) passName(dir *node, name string) {
	if !c.storage.Lingers {
		return
	}
	waited, others := false, 0
	for range passTries {
		var st unix.Stat_t
		if unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return // that there is no such file is not cached
		}
		err := c.isCalled(dir, name, &st)
		switch err {
		case nil:
			return
		case unix.ENOENT, unix.ESTALE:
			c.forceLookup(dir, name)
			continue
		case errOtherFile:
			// The listing may have told the client, too.
			if others++; others == 1 {
				c.forceLookup(dir, name)
				continue
			}
			if others > dirTries {
				return
			}
		case errOtherName: // of several, perhaps, or a directory above has another one
			switch is := c.listed.tell(dir, name, st.Ino, false); {
			case is == nil:
				return
			case is != errOtherFile || waited:
				err = errUnknown
			}
		}
		if err != errNoName && err != errOtherName && err != errOtherFile {
			c.outlast()
			c.forceLookup(dir, name)
			return
		}
		// Whoever asks for the file, if by another name, has the client go on with
		// this one in that second, too: nothing but the time makes it ask.
		time.Sleep(lingers(time.Now()))
		waited = true
		c.forceLookup(dir, name)
	}
}

// passTries is how often a name is looked up that other hosts replace all the
// time.
const passTries = 20

// dirTries is how often the name of a directory is looked up of which the listing tells another
// one, while a program here looks at the one that it had all the time.
const dirTries = 4

var (
	errOtherName = errors.New("the file has another name")
	errNoName    = errors.New("the file has no name any more")
	errOtherFile = errors.New("the name is that of another file")
	errUnlisted  = errors.New("the directory cannot be listed, or has not been")
	errUnknown   = errors.New("it is not known whether the file has the name")
)

// isCalled asks the server for the names of the file that name leads to, which
// st describes.
func (c *client) isCalled(dir *node, name string, st *unix.Stat_t) error {
	n := c.tree.known(st)
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	// Of several names it is not known for which one that is.
	looked := n != nil && !c.outdated(&n.seen.name) && (isDir || st.Nlink == 1) && c.tree.isCalledOnly(n, dir, name)
	if looked && (!isDir || c.leases.current()) {
		return nil
	}
	gen := c.arrivals.explicit.Load() + 1
	if isDir && n == nil {
		c.listed.meets(dir, name)
	}
	if isDir && n != nil && !looked && uint64(st.Dev) == dir.key.dev {
		switch err := c.listed.tell(dir, name, st.Ino, true); {
		case err == nil:
			n.seen.name.Store(gen)
			return nil
		case err != errUnlisted && c.listed.told.Load():
			return err
		}
	}
	fd, err := c.descriptors.withReserve(func() (fd int, err error) {
		err = retryEINTR(func() (err error) {
			fd, err = unix.Openat(dir.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			return err
		})
		return fd, err
	})
	if err != nil {
		return err
	}
	defer closeFD(fd)
	paths := make([]byte, 1<<16)
	k, err := unix.Getxattr(fdPath(fd), "glusterfs.gfid2path", paths)
	switch {
	case isDir && err != unix.ENOENT && err != unix.ESTALE:
		if n != nil {
			n.seen.name.Store(gen)
		}
		return nil // it exists; of a directory this tells no name
	case err != nil:
		return err
	}
	// One of them, from the root of the volume, with a NUL at its end.
	path := strings.TrimRight(string(paths[:k]), "\x00")
	if strings.HasPrefix(path, "<gfid:") && !strings.Contains(path, "/") { // removed or replaced, but still open
		return errNoName
	}
	if !strings.HasSuffix(path, "/"+c.tree.join(dir, name)) {
		return errOtherName
	}
	if n != nil {
		n.seen.name.Store(gen)
	}
	return nil
}

// forceLookup makes the kernel ask for a name that it has cached, and the
// client of the storage, if that does not know the file any more. It is a
// linkat(2) that must fail: the file is in another file system.
func (c *client) forceLookup(dir *node, name string) {
	_ = unix.Linkat(c.procs.proc, "version", dir.fd, name, 0)
}
