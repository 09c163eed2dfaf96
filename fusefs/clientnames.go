package fusefs

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A client that keeps names (Storage.KeepsNames) is sshfs with its defaults: it
// answers from what it knows of a path for 20 s, whatever the kernel was told
// to force. What ends that earlier is
//
//   - for a file open(2), the answer to which takes the place of what was
//     known, also if it is that there is none;
//   - for a directory a change that goes through this client: of a name in it,
//     or of its own mode, owner or times. Whether it is there still, statfs(2)
//     tells.
//
// That there is no file of a name is not kept.
//
// So a file is opened when somebody asks for its name or its attributes, once
// in Options.TTL: who waits for a lock file of another host sees it go, and
// git(1), which compares times and sizes, sees that a file was replaced.

// The answer to open(2) takes no place, and nobody is told, if meanwhile something was
// written through this client, to whatever file (cache_add_attr in its cache.c). So an
// open(2) that is to renew something is kept apart from the writes of this process; of
// other processes that write through the same client nothing is known here.

// keptNames is for how long such a client keeps something, with a margin: it
// counts in whole seconds, and begins when the answer has arrived.
const keptNames = 25 * time.Second

// keptDir is for how long a directory is taken to be there without asking. It is
// on the way to every file below it.
const keptDir = time.Second

// isOld reports whether what the client of the storage would say of a file has
// to be looked at anew.
func (c *client) isOld(n *node) bool {
	switch {
	case c.outdated(&n.seen.attr):
		return true
	case !c.storage.KeepsNames && !c.storage.NamesByTime || c.now() <= n.seen.until.Load():
		return false
	case n.isDir():
		return n != c.tree.root
	case c.storage.NamesByTime: // a file is looked at when it is opened
		return false
	}
	// What this host holds an open lock of nobody else changes; but another
	// file may take its place.
	return n.isRegular() && (n.isSole() || !n.holds())
}

// opening calls open, which stores a descriptor in fd, so that what the client knows of
// the file is renewed by it.
func (c *client) opening(fd *int, open func() error) error {
	return c.gate().Apart(open, func() { closeFD(*fd) })
}

// looked notes that n was looked at just now.
func (c *client) looked(n *node) {
	switch {
	case !c.storage.KeepsNames && !c.storage.NamesByTime:
	case n.isDir() && c.storage.KeepsNames:
		n.seen.until.Store(c.now() + keptDir.Milliseconds())
	default:
		n.seen.until.Store(c.now() + c.opts.TTL.Milliseconds())
	}
}

// notMade is told why nothing could be made in a directory. If there is no such
// it has been removed, and whoever asks for it next is told so.
func (c *client) notMade(dir *node, err error) {
	if err == unix.ENOENT || err == unix.ESTALE {
		dir.seen.until.Store(0)
	}
}

// mayBeGone is called when n has lost a name here: the number of its file may be
// that of the next one. n may be nil.
func (c *client) mayBeGone(n *node) {
	if n != nil && c.storage.NamesByTime {
		n.distrust()
	}
}

// isGone reports whether a directory has been removed which the client may
// keep. n is pinned and has its anchor.
func (c *client) isGone(n *node) bool {
	return c.storage.KeepsNames && n.isDir() && hasGone(n.fd)
}

// hasGone asks the server for the room that there is where a directory was.
func hasGone(fd int) bool {
	var fs unix.Statfs_t
	return retryEINTR(func() error { return unix.Fstatfs(fd, &fs) }) == unix.ENOENT
}

// listAnew makes a client that keeps names, or that of NFS, forget what is in a
// directory, which is about to be listed. n is pinned and has its anchor. The error is ENOENT if
// it has been removed.
//
// There is no other way than to change something; its times can be set by the
// owner of the directory. Who is not sees names that are up to keptNames old.
// It is not done where the client cannot have a listing.
func (c *client) listAnew(n *node) error {
	if c.askOf(n) {
		if isRemoved(n) {
			return unix.ESTALE // another one may be in its place
		}
		return nil
	}
	if !c.storage.KeepsNames || !c.listings.mayBeKept(c.tree.pathTo(n), c.now()) {
		return nil
	}
	both := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	if err := unix.UtimesNanoAt(c.fds, itoa(n.fd), both, 0); err == unix.ENOENT {
		return err
	}
	return nil
}

// listings remembers which directories were listed lately, by path, as the
// client does.
type listings struct {
	all    int64 // until then it may have any, of before this process; on the server's clock
	mu     sync.Mutex
	until  map[string]int64 // when the client has forgotten it at the latest; on the server's clock
	pruned int64            // when the old ones were dropped
}

// mayBeKept reports whether the client may have a listing of a directory,
// which it will have in any case from now on.
func (l *listings) mayBeKept(path string, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until = make(map[string]int64)
	}
	until, ok := l.until[path]
	l.until[path] = now + keptNames.Milliseconds()
	if now > l.pruned+keptNames.Milliseconds() {
		l.pruned = now
		maps.DeleteFunc(l.until, func(_ string, until int64) bool { return until < now })
	}
	return ok && until >= now || now <= l.all
}
