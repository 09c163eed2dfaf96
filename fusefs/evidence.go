package fusefs

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// evidence finds out whether another process has done what it had begun, see again.go.
type evidence struct {
	*base
	actor *actor
}

// identity of a file at a name; the zero value is none.
type identityAt struct {
	key       fileKey
	sec, nsec int64 // of its birth, if that is known
}

func lookAtName(dir *node, name string) (x identityAt, st unix.Statx_t, err error) {
	err = retryEINTR(func() error {
		return unix.Statx(dir.fd, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	})
	if err == unix.ENOENT {
		return x, st, nil
	}
	if err != nil {
		return x, st, err
	}
	x.key = fileKey{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		x.sec, x.nsec = st.Btime.Sec, int64(st.Btime.Nsec)
	}
	return x, st, nil
}

// lookBefore notes what there is before c.
func (e *evidence) lookBefore(c *change, w *was) {
	var err error
	var x identityAt
	switch {
	case c.data != nil:
		var st unix.Stat_t
		err = retryEINTR(func() error { return unix.Fstat(c.h.fd, &st) })
		w.size = st.Size
	case c.makes != 0:
		var st unix.Stat_t
		if err = retryEINTR(func() error { return unix.Fstat(c.dir.fd, &st) }); err == nil {
			w.sec, w.nsec = st.Ctim.Sec, st.Ctim.Nsec
			x, _, err = lookAtName(c.dir, c.name)
			w.a = x.key
		}
	case c.links != nil:
		x, _, err = lookAtName(c.dir, c.name)
		w.a = x.key
	case c.removes:
		x, _, err = lookAtName(c.dir, c.name)
		w.a, w.sec, w.nsec = x.key, x.sec, x.nsec
	case c.moves != "":
		if x, _, err = lookAtName(c.leave, c.moves); err == nil {
			w.a = x.key
			x, _, err = lookAtName(c.dir, c.name)
			w.b = x.key
		}
	default:
		return
	}
	if err == nil {
		w.known = 1
	}
}

// conclude finds out whether c, of which another process had begun the step x, was done.
// Without an error, and if it was not, it is made.
func (e *evidence) conclude(c *change, x *step) (done bool, err error) {
	w := &x.was
	if w.known == 0 {
		return false, nil
	}
	none := fileKey{}
	switch {
	case c.data != nil:
		return e.appended(c, w.size)
	case c.makes != 0:
		if w.a != none || !e.isOurs(c, w) {
			return false, nil
		}
		if c.reopen != nil {
			return true, c.reopen()
		}
		return true, nil
	case c.links != nil:
		is, _, err := lookAtName(c.dir, c.name)
		return err == nil && w.a == none && is.key == c.links.key, nil
	case c.removes:
		is, _, err := lookAtName(c.dir, c.name)
		same := is.key == w.a && is.sec == w.sec && is.nsec == w.nsec
		return err == nil && w.a != none && !same, nil
	case c.moves != "":
		from, _, err := lookAtName(c.leave, c.moves)
		if err != nil || w.a == none || w.a == w.b {
			return false, nil
		}
		to, _, err := lookAtName(c.dir, c.name)
		if c.exchange {
			return err == nil && to.key == w.a && from.key == w.b, nil
		}
		return err == nil && to.key == w.a && from.key != w.a, nil
	}
	return false, nil
}

// isOurs reports whether what has the name of c now is what c was to make.
func (e *evidence) isOurs(c *change, w *was) bool {
	is, st, err := lookAtName(c.dir, c.name)
	if err != nil || is == (identityAt{}) || uint32(st.Mode)&unix.S_IFMT != c.makes {
		return false
	}
	born := st.Ctime
	if st.Mask&unix.STATX_BTIME != 0 {
		born = st.Btime
	}
	if born.Sec < w.sec || born.Sec == w.sec && int64(born.Nsec) < w.nsec {
		return false
	}
	if !e.storage.Remote && e.actor.self.changes && st.Uid != c.in.Uid {
		return false
	}
	const perm = 0o777
	switch c.makes {
	case unix.S_IFLNK:
		b := make([]byte, unix.PathMax+1)
		n, err := unix.Readlinkat(c.dir.fd, c.name, b)
		return err == nil && string(b[:n]) == c.target
	case unix.S_IFREG:
		return st.Size == 0 && st.Nlink == 1 && uint32(st.Mode)&perm&^c.mode == 0
	}
	return uint32(st.Mode)&perm&^c.mode == 0
}

// mostLooked is how much of a file is looked at for what was appended.
const mostLooked = 16 << 20

// appended finds out how much of what c was to append stands behind size, where the
// file ended, and leaves the rest to c.
func (e *evidence) appended(c *change, size int64) (done bool, err error) {
	fd, err := unix.Openat(e.fds, itoa(c.h.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, unix.EIO // it cannot be known
	}
	defer closeFD(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, unix.EIO
	}
	if st.Size <= size {
		return false, nil
	}
	b := make([]byte, min(st.Size-size, mostLooked))
	n, err := pread(fd, b, size)
	if err != nil {
		return false, unix.EIO
	}
	b = b[:n]
	at := bytes.Index(b, c.data)
	switch {
	case at >= 0: // behind what others have appended, perhaps
		c.length = len(c.data)
		return true, nil
	case bytes.HasPrefix(c.data, b):
		c.length = n // what comes next is another step
		return true, nil
	}
	return false, nil
}

// isToMove reports whether a process before this one has made the rename c, and had not
// come to move what is known of the files.
func (nc *nameCalls) isToMove(c *change) bool {
	t := nc.tree
	t.mu.Lock()
	n, m := c.leave.children[c.moves], c.dir.children[c.name]
	t.mu.Unlock()
	if n == nil || !c.exchange || m == nil {
		return n != nil
	}
	is, _, err := lookAtName(c.dir, c.name)
	return err == nil && is.key != m.key // else they have changed places
}

// hasXAttr reports whether n has an extended attribute with this value.
func hasXAttr(n *node, attr string, value []byte) bool {
	b := make([]byte, len(value)+1)
	size, err := unix.Getxattr(fdPath(n.fd), attr, b)
	return err == nil && bytes.Equal(b[:size], value)
}

// openMade opens a file that a process before this one has made, whose mode may let
// nobody open it.
func (oc *openCalls) openMade(dir *node, name string, flags int) (fd int, err error) {
	flags |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	open := func() error {
		fd, err = unix.Openat(dir.fd, name, flags, 0)
		return err
	}
	if err = retryEINTR(open); err != unix.EACCES {
		return fd, err
	}
	anchor, err := unix.Openat(dir.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer closeFD(anchor)
	var st unix.Stat_t
	if err := unix.Fstat(anchor, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, unix.EACCES
	}
	if err := unix.Fchmodat(oc.fds, itoa(anchor), st.Mode&0o7777|0o600, 0); err != nil {
		return -1, unix.EACCES
	}
	err = retryEINTR(open)
	if back := unix.Fchmodat(oc.fds, itoa(anchor), st.Mode&0o7777, 0); back != nil && err == nil {
		closeFD(fd)
		return -1, back
	}
	return fd, err
}
