package fusefs

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/recent"
)

// evidence finds out whether another process has done what it had begun, see again.go.
type evidence struct {
	*base
	actor   *actor
	client  *client
	touches touches
}

// identity of a file at a name; the zero value is none.
type identityAt struct {
	key       fileKey
	sec, nsec int64 // of its birth, if that is known
}

func lookAtName(dir *node, name string, how int) (x identityAt, st unix.Statx_t, err error) {
	err = retryEINTR(func() error {
		return unix.Statx(dir.fd, name, unix.AT_SYMLINK_NOFOLLOW|how, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	})
	if err == unix.ENOENT {
		return x, st, nil
	}
	if err != nil {
		return x, st, err
	}
	return identityOf(&st), st, nil
}

// lookBefore notes what there is before c.
func (e *evidence) lookBefore(c *change, w *was) {
	var x identityAt
	var st unix.Statx_t
	var err error
	switch {
	case c.looksDone != nil:
		if c.looksDone() {
			w.size = 1
		}
	case c.data != nil:
		var f unix.Stat_t
		err = retryEINTR(func() error { return unix.Fstat(c.h.fd, &f) })
		w.size = f.Size
	case c.makes != 0:
		var d unix.Stat_t
		if err = retryEINTR(func() error { return unix.Fstat(c.dir.fd, &d) }); err == nil {
			w.sec, w.nsec = d.Ctim.Sec, d.Ctim.Nsec
			x, st, err = lookAtName(c.dir, c.name, 0)
		}
	case c.links != nil:
		x, st, err = lookAtName(c.dir, c.name, 0)
	case c.removes:
		x, st, err = lookAtName(c.dir, c.name, 0)
		w.sec, w.nsec = x.sec, x.nsec
	case c.moves != "":
		var to identityAt
		if to, _, err = lookAtName(c.dir, c.name, 0); err == nil {
			w.b = to.key
			x, st, err = lookAtName(c.leave, c.moves, 0)
		}
	default:
		return
	}
	w.a, w.csec, w.cnsec, w.bsec, w.bnsec = x.key, st.Ctime.Sec, int64(st.Ctime.Nsec), x.sec, x.nsec
	if err == nil {
		w.known = 1
	}
}

// conclude finds out whether c, of which another process had begun the step x, was done; v is
// what others say. Without an error, and if it was not, it is made.
func (e *evidence) conclude(c *change, x *step, v recent.Verdict) (done bool, err error) {
	switch {
	case v == recent.Done:
		return true, nil
	case v == recent.NotDone:
		return false, nil
	case c.data != nil && x.protected != 0 && x.was.known != 0: // who writes there has that lock
		return e.appended(c, x.was.size)
	}
	err, guess := e.certain(c, &x.was)
	if guess {
		err = e.guess(c)
	}
	return false, err
}

// certain is an error if it is known what c comes to; guess: or if another host may have done
// it, since it has the same names, and what there is says nothing about whose it is.
func (e *evidence) certain(c *change, w *was) (err error, guess bool) {
	switch {
	case c.data != nil:
		var st unix.Stat_t
		err := retryEINTR(func() error { return unix.Fstat(c.h.fd, &st) })
		return nil, err != nil || w.known == 0 || st.Size > w.size
	case c.makes != 0 || c.links != nil:
		is, st, err := e.lookNow(c.dir, c.name)
		switch {
		case err != nil:
			return nil, true
		case is == (identityAt{}), e.isForeign(c, is, &st), isUnchanged(w, is, &st):
		case c.shares:
			return unix.EEXIST, false
		default:
			return nil, true
		}
	case c.removes || c.moves != "":
		dir, name := c.names()
		is, st, err := e.lookNow(dir, name)
		return nil, err != nil || e.storage.KeepsNames || !isUnchanged(w, is, &st)
	}
	return nil, false
}

// names is the name that c takes away, or else makes.
func (c *change) names() (dir *node, name string) {
	if c.moves != "" {
		return c.leave, c.moves
	}
	return c.dir, c.name
}

// lookNow looks past what the client of the storage remembers.
func (e *evidence) lookNow(dir *node, name string) (identityAt, unix.Statx_t, error) {
	e.client.askOf(dir)
	return lookAtName(dir, name, unix.AT_STATX_FORCE_SYNC)
}

// isUnchanged reports whether a name leads to the file that it led to before. One that is
// made anew may have the number of the other, but was changed later.
func isUnchanged(w *was, is identityAt, st *unix.Statx_t) bool {
	return w.known != 0 && w.a != fileKey{} && is.key == w.a && st.Ctime.Sec == w.csec && int64(st.Ctime.Nsec) == w.cnsec
}

// isForeign reports whether what has the name of c is not what c makes, whoever did.
func (e *evidence) isForeign(c *change, is identityAt, st *unix.Statx_t) bool {
	switch {
	case c.links != nil:
		return is.key != c.links.key
	case uint32(st.Mode)&unix.S_IFMT != c.makes:
		return true
	case c.makes != unix.S_IFLNK:
		return false
	}
	b := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(c.dir.fd, c.name, b)
	return err == nil && string(b[:n]) != c.target
}

// mostTold is how many changes the log names that fail, of one process.
const mostTold = 100

// guess is the error of c, which looks done, though another host may have done it.
func (e *evidence) guess(c *change) error {
	d := &e.redo
	d.mu.Lock()
	d.told++
	told := d.told
	d.mu.Unlock()
	if told > mostTold {
		return unix.EIO
	}
	path := c.name
	switch {
	case c.dir != nil:
		path = e.tree.join(c.dir, c.name)
	case c.h != nil:
		path = e.tree.pathTo(c.h.n)
	case c.files[0] != nil:
		path = e.tree.pathTo(c.files[0])
	}
	e.log.Error("a change fails with EIO: the daemon was killed while it made it, and whether it or another host did cannot be known; look at the file, and undo or repeat the change",
		"change", c.op, "path", path, "pid", c.in.Pid)
	if told == mostTold {
		e.log.Error("of more changes that fail for that reason nothing is said", "said", told)
	}
	return unix.EIO
}

// isOurs reports whether what has the name of c, as st says, may be what c was to make.
func (e *evidence) isOurs(c *change, w *was, st *unix.Statx_t) bool {
	if uint32(st.Mode)&unix.S_IFMT != c.makes {
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
	is, _, err := lookAtName(c.dir, c.name, 0)
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
