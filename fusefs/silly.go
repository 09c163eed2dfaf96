package fusefs

import (
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A client of NFS cannot remove a file that its host has open: the server would
// forget it. It gives it another name, .nfs…, and removes that when the file is
// closed ("silly rename"). To it an anchor is as good as an open file. So what
// dmxfs keeps for itself must not be in the way of what programs do.

// letDown lets go of the anchor of a file that loses a name: at once, or if
// somebody uses it, then. n may be nil; the caller has pinned it.
//
// One that is replaced by rename(2) may lose its last one, if no program has it
// open: else the client would first give that another name, and for a moment
// other hosts would find no file there. One that is removed keeps its anchor, as
// somebody may still ask for its attributes; it is forgotten soon.
func (nc *nameCalls) letDown(n *node, replaced bool) {
	if n == nil || !nc.storage.SillyRenames {
		return
	}
	t := nc.tree
	t.mu.Lock()
	defer t.unlock() // closes it before the name is removed
	switch {
	case n.fd < 0 || n.isDir() || len(n.names) < 2 && !(replaced && n.pins == 1):
	case n.pins > 1:
		n.spare = true
		t.ledger.note(t, n)
	default:
		t.dropAnchor(n, t.closeLater)
	}
}

// awaitClosed waits until n is closed, which is about to lose its name to another
// file, if a RELEASE of it may be on its way: close(2) has returned before. It
// waits for closeTime at most, as a program that has two descriptors of one open
// file, and has closed one of them, looks the same.
func (nc *nameCalls) awaitClosed(in *fuse.InHeader, n *node) {
	if n == nil || !nc.storage.SillyRenames {
		return
	}
	var w closeWait
	for n.isBeingClosed() && nc.fence.awaitClose(&w) {
		nc.conn.willWait(in.Unique)
	}
}

const (
	// sillyTime is how long a directory is given to get empty. What is closed is
	// closed on the storage in the background, by this host or another one.
	sillyTime = time.Second
	// sillyPause is how long to wait at first before it is tried again, and
	// sillyLongPause at most.
	sillyPause, sillyLongPause = time.Millisecond, 50 * time.Millisecond
)

// untilEmpty makes a call that removes the directory n, or replaces it, and makes
// it again while nothing but files .nfs… are in the way. They go when what was
// just closed is closed, or forgotten, here as well; those that a program has
// open stay, and the directory with them. n may be nil, or no directory.
func (nc *nameCalls) untilEmpty(cancel <-chan struct{}, in *fuse.InHeader, n *node, call func() error) error {
	err := call()
	if !nc.storage.SillyRenames || n == nil || !n.isDir() {
		return err
	}
	pause := sillyPause
	for began := time.Now(); err == unix.ENOTEMPTY || err == unix.EEXIST; pause = min(2*pause, sillyLongPause) {
		if time.Since(began) > sillyTime || closed(cancel) || nc.finder.anchorAgain(in, n) != nil || !nc.hasOnlySilly(n) {
			break
		}
		nc.conn.willWait(in.Unique)
		nc.tree.closings.wait(cancel)
		select {
		case <-cancel:
		case <-time.After(pause):
		}
		err = call()
	}
	return err
}

// hasOnlySilly reports whether a directory has no files but those that clients keep
// for who has them open. It is pinned and has its anchor.
func (nc *nameCalls) hasOnlySilly(dir *node) bool {
	_ = nc.client.listAnew(dir)
	fd, err := nc.finder.descriptors.withReserve(func() (int, error) {
		return unix.Openat(dir.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return false
	}
	defer closeFD(fd)
	buf := make([]byte, pageSize)
	for {
		k, err := unix.Getdents(fd, buf)
		if err != nil || k == 0 {
			return err == nil
		}
		for rest := buf[:k]; len(rest) > 0; {
			e, size := parseDirent(rest)
			if rest = rest[size:]; e.Name != "." && e.Name != ".." && !strings.HasPrefix(e.Name, ".nfs") {
				return false
			}
		}
	}
}
