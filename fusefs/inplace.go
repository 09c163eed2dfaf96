package fusefs

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// Over a client that keeps names (Storage.KeepsNames) nothing says whether a file
// was changed in its place, as a log is to which another host appends under a
// lock of its own, or another one was put there: the protocol has no inode
// numbers. But a descriptor that was opened before stays with its file on the
// server. So what it reads is compared with what is read through a new one. If
// that is the same, they are one file, or it makes no difference: from then on
// all that have the file open use the new one, and see what becomes of that.
//
// To be taken for another file by mistake means not to see what is new; for the
// same, to go on in the middle of one file with another. So when in doubt it is
// another one.

const (
	// inPlaceWhole is the size up to which a file is compared as a whole.
	inPlaceWhole = 256 << 10
	// inPlaceHead and inPlaceTail are what is compared of a longer one that has
	// grown. What was not appended to is not compared.
	inPlaceHead, inPlaceTail = 4 << 10, 128 << 10
	// inPlaceTries is how often a file is compared that is being written.
	inPlaceTries = 3
)

// changedInPlace reports whether the file that programs have open as n, and of
// which something else is known than what st says, was changed in its place, or
// not at all; and corrects st.
func (c *client) changedInPlace(n *node, st *unix.Stat_t) bool {
	n.sole.mu.Lock()
	defer n.sole.mu.Unlock()
	for range inPlaceTries {
		reopened := n.sole.reopened.Load()
		was, hs := n.soleHandles()
		if !n.seemsReplaced(st) {
			return true // somebody else found out; or it may be changed by now, through this host
		}
		fd, now, err := c.openSole(hs)
		if err != nil {
			return false
		}
		*st = now
		if c.readsTheSame(hs, fd, was.Size, now.Size) {
			c.useInstead(n, hs, fd, &now, reopened)
			return true
		}
		closeFD(fd)
	}
	return false
}

// soleHandles are the handles of n that have the file open of which was is known.
func (n *nodeLocks) soleHandles() (was unix.Stat_t, hs []*handle) {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	for h := range n.handles {
		if h.sole {
			hs = append(hs, h)
		}
	}
	return n.sole.st, hs
}

// openSole opens what the name of the file now leads to that hs have open.
func (c *client) openSole(hs []*handle) (fd int, st unix.Stat_t, err error) {
	if len(hs) == 0 {
		return -1, st, unix.EBADF
	}
	fd, err = c.descriptors.withReserve(func() (int, error) {
		fd, _, err := c.openHandle(hs[0])
		return fd, err
	})
	if err == nil {
		err = c.fetchAttr(fd)
	}
	if err == nil {
		err = retryEINTR(func() error { return unix.Fstat(fd, &st) })
	}
	if err != nil {
		closeFD(fd)
	}
	return fd, st, err
}

// readsTheSame reports whether one of hs reads what fd does, which is of a file of
// size now, while hs had one of size was.
func (c *client) readsTheSame(hs []*handle, fd int, was, now int64) bool {
	if now == 0 || now > inPlaceWhole && now <= was {
		return false
	}
	for _, h := range hs {
		h.mu.RLock()
		usable := h.fd >= 0 && !h.released
		same := usable && sameText(h.fd, fd, now)
		h.mu.RUnlock()
		if usable {
			return same
		}
	}
	return false
}

// sameText reports whether two descriptors read the same, and old not beyond the
// end of new, a file of size bytes.
//
// Each read but the first begins at an odd byte and is of an even length: sshfs
// reads ahead, and answers from that, for as long as it likes, who reads where it
// begins. The kernel reads where pages begin.
func sameText(old, new int, size int64) bool {
	// The kernel asks for what is behind the end that it knows of, but only up to a
	// multiple of its largest request, so that must not be just the end.
	odd := int64(1)
	if (size-odd)%inPlaceTail == 0 {
		odd = 3
	}
	if !samePart(old, new, 0, odd, size) {
		return false
	}
	if size > inPlaceWhole {
		return samePart(old, new, 1, inPlaceHead, size) && samePart(old, new, (size-inPlaceTail)|1, inPlaceTail, size)
	}
	return size <= odd || samePart(old, new, odd, size, size)
}

// samePart compares length bytes at off, and what is behind the end with them,
// if they are the last.
func samePart(old, new int, off, length, size int64) bool {
	if off > 0 {
		length = (length + 3) &^ 1
	}
	a, b := make([]byte, length), make([]byte, length)
	// The old one first: what is appended meanwhile the new one has, too.
	n, err := pread(old, a, off)
	if err != nil {
		return false
	}
	m, err := pread(new, b, off)
	if err != nil || m < n {
		return false
	}
	return int64(n) >= min(length, size-off) && bytes.Equal(a[:n], b[:n])
}

// useInstead lets hs, which have n open, use the file of fd from now on, which
// is like now. It closes fd. One that was reopened since n.sole.reopened was
// counted, before fd was opened, has a newer descriptor than that: a lock may
// have been away meanwhile, and another file be there.
func (c *client) useInstead(n *node, hs []*handle, fd int, now *unix.Stat_t, reopened uint64) {
	defer closeFD(fd)
	for _, h := range hs {
		next, err := c.descriptors.withReserve(func() (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) })
		if err != nil {
			continue // the old one reads the same
		}
		h.mu.Lock()
		if !h.released && n.sole.reopened.Load() == reopened {
			h.fd, next = next, h.fd
		}
		h.mu.Unlock()
		closeFD(next)
	}
	n.lockMu.Lock()
	if n.sole.known {
		n.sole.st = *now
	}
	n.lockMu.Unlock()
}
