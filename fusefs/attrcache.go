package fusefs

import (
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The kernel takes over the attributes of an answer when the program that asked
// gets to run. If it has taken over another answer since that was asked for, it
// ignores it (see fuse_change_attributes), and a read(2) that asked goes on
// with the size of the other one, even if that was found out long before.
//
// So an answer from before a lock came here can make the read after it end too
// early: somebody else asked, was told the old size, and gets to run while the
// new size is asked for. A notification makes the kernel ignore all that was
// asked for before; but the new size, too, if it is on its way to a program
// that got its lock a moment ago. So it is sent only where an old size may be
// on its way, and never because of answers that said what is still true.

// Where the size or the time of the last write is another one, the kernel drops
// the pages of the file when it takes over the answer. It waits for those that
// are locked for requests that are parked, and nothing ends that: neither stat(2)
// nor rm(1), which holds the directory. So while such requests are parked it has
// to ignore what is news; stat(2) shows it all the same. A read(2) for which the
// size is news waits before it is told, where a signal ends it.

// attrCache is what the kernel is told of files, and may keep: their attributes.
type attrCache struct {
	*base
	unprotected *unprotected
	client      *client
	entries     *entries
	longCache   *longCache
	leases      *leases
	forgetting  sync.Mutex // held by forgetTold: who comes meanwhile waits until that is done
}

// mayBlock reports whether a request is parked that keeps pages of n locked, or
// one that begins now may be.
func (n *node) mayBlock() bool { return n.blocked.Load() > 0 || n.unsettled.Load() > 0 }

// samePages reports whether the kernel keeps its pages when it is told w after v.
func (v version) samePages(w version) bool { return v.size == w.size && v.mtime == w.mtime }

// hasNewSize reports whether the kernel was not told how long the file is.
func (c *attrCache) hasNewSize(n *node) bool {
	var st unix.Stat_t
	if unix.Fstat(c.tree.anchorOf(n), &st) != nil {
		return false
	}
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	return n.told.known && n.told.size != st.Size
}

// toldSizes are the sizes of a file in the answers since the last notification.
// Guarded by nodeCache.cacheMu.
type toldSizes struct {
	any, mixed bool // there is one; there are different ones
	size       int64
	last       int64 // when, on the server's clock
}

// takenOver is how many milliseconds it takes at most, on a machine that is
// very busy, until an answer has been taken over.
const takenOver = 10_000

func (x *toldSizes) add(size, now int64) {
	if x.any && now-x.last > takenOver {
		*x = toldSizes{}
	}
	x.mixed = x.mixed || x.any && x.size != size
	x.any, x.size, x.last = true, size, now
}

// pending reports whether an answer may not have been taken over.
func (x *toldSizes) pending(now int64) bool { return x.any && now-x.last <= takenOver }

// differ reports whether one of those may say another size than this.
func (x *toldSizes) differ(size, now int64) bool {
	return x.pending(now) && (x.mixed || x.size != size)
}

// tellAttr fills in what the kernel is told of a node.
func (c *attrCache) tellAttr(n *node, a *fuse.Attr, st *unix.Stat_t) {
	c.fillAttr(a, st)
	c.tells(n, versionOf(st), false)
}

// tells notes what the kernel is told of a node. Afterwards arrivals.all is
// compared with what it was before the storage was asked: a refresh changes it
// first, and then looks at what is noted here, so that one of the two finds out.
//
// What is news while pages are locked the kernel is made to ignore, but for the
// size if a program is going to read by it.
func (c *attrCache) tells(n *node, v version, toRead bool) {
	n.toldAt.Store(c.now())
	n.mayHaveSize(v.size) // the answer to a SETATTR counts whatever is forgotten
	n.cacheMu.Lock()
	if n.blocked.Load() > 0 && n.told.known && !n.told.samePages(v) && !(toRead && v.size != n.told.size) {
		n.cacheMu.Unlock()
		n.notified.Add(1)
		c.dev.forgetAttr(n.id)
		return
	}
	if n.isRegular() && n.cached.Load() && n.told.known && !n.told.samePages(v) && max(v.size, n.told.size) > manyPages {
		n.newsAt.Store(c.now())
	}
	n.told = v
	if n.isRegular() {
		n.sizes.add(v.size, c.now())
	}
	n.cacheMu.Unlock()
	c.unprotected.noteKnown(n)
}

// tellNew corrects what the kernel is told of a node that other nodes may have
// changed since it was found out. One that has no anchor is not open, and what
// is told of it is looked at when it is opened, see opensAs.
func (c *attrCache) tellNew(n *node, a *fuse.Attr) {
	c.tree.pin(n)
	defer c.tree.unpin(n)
	fd := c.tree.anchorOf(n)
	if fd < 0 {
		return
	}
	_ = c.untilNow(func() error {
		var st unix.Stat_t
		err := c.fstat(n, fd, &st)
		if err == nil {
			c.tellAttr(n, a, &st)
		}
		return err
	})
}

// untilNow calls tell, which asks the storage and tells the kernel, until no
// lock came here meanwhile. Where locks come faster than the storage answers it
// gives up, and the answer is one that comes late.
func (c *attrCache) untilNow(tell func() error) error {
	const tries = 10
	for i := 1; ; i++ {
		gen := c.arrivals.all.Load()
		if err := tell(); err != nil || i == tries || c.arrivals.all.Load() == gen {
			return err
		}
	}
}

// dropOld makes the kernel forget the attributes of n, if it may have any, and
// ignore an old size that is on its way to it.
func (c *attrCache) dropOld(n *node) {
	if n.attrTold.Load() {
		c.forgetAttr(n)
		return
	}
	now := c.now()
	n.cacheMu.Lock()
	pending := n.sizes.pending(now)
	n.cacheMu.Unlock()
	fd := c.tree.anchorOf(n)
	if !pending || fd < 0 {
		return
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	n.cacheMu.Lock()
	differ := err != nil || n.sizes.differ(st.Size, now)
	n.cacheMu.Unlock()
	if differ {
		c.forgetAttr(n)
	}
}

// forgetTold makes the kernel forget the attributes that it was told lately of directories, and
// of files that are not open: of those that are, refresh knows which. They do not all go with
// the names, as where a program works in the directory; and an answer from before a lock came
// here that is taken over while somebody asks anew would have the kernel ignore what it says
// then (see above).
func (c *attrCache) forgetTold() {
	c.forgetting.Lock()
	defer c.forgetting.Unlock()
	for _, id := range c.entries.takeNodes(c.now()) {
		if n := c.tree.get(id); n != nil && !(n.isRegular() && n.hasHandles()) {
			c.stats.AttrDrops.Add(1)
			n.attrForgotten()
			c.dev.forgetAttr(id) // nobody reads it
		}
	}
}

// answerAttr answers with the attributes of n. toRead: the program goes on with
// the size.
func (c *attrCache) answerAttr(n *node, out *fuse.AttrOut, toRead bool) fuse.Status {
	// Before the storage is asked: a notification that comes later makes the
	// kernel ignore the answer.
	ttl := c.attrTTLOf(n)
	_ = c.client.lookAt(n) // a file that is gone, but open, has attributes
	err := c.untilNow(func() error {
		var st unix.Stat_t
		err := c.fstat(n, n.fd, &st)
		if err == nil {
			c.client.stay(n, &st)
			c.fillAttr(&out.Attr, &st)
			c.tells(n, versionOf(&st), toRead)
		}
		return err
	})
	out.SetTimeout(ttl)
	return status(err)
}

// fillEntry answers with an entry. gen is arrivals.all before the storage was
// asked: if other nodes may have changed names or files since, the kernel must
// not keep what it is told.
func (c *attrCache) fillEntry(out *fuse.EntryOut, dir *node, name string, n *node, st *unix.Stat_t, gen uint64) {
	out.NodeId, out.Generation = n.id, 1
	if ttl := c.entryTTL; ttl > 0 && n.holders.Load() == 0 {
		if now := c.now(); c.entries.mayKeep(n.isDir(), now) {
			c.entries.told(dir.id, name, now, now+(ttl+tickSlack).Milliseconds())
			if c.arrivals.all.Load() == gen {
				out.SetEntryTimeout(ttl)
			}
		}
	}
	// attrTold is set before gen is looked at, and refresh does it the other
	// way round: one of the two finds out.
	if ttl := c.attrTTLOf(n); c.arrivals.all.Load() == gen {
		out.SetAttrTimeout(ttl)
	}
	if c.correct(n, st) != nil {
		out.SetAttrTimeout(0) // the kernel asks, and has the anchor set
	}
	c.tellAttr(n, &out.Attr, st)
	if c.arrivals.all.Load() != gen {
		c.tellNew(n, &out.Attr)
	}
}

// keepEntry is fillEntry where nothing was changed: the kernel may keep the entry
// for long if the lease is still good; s is of leases.look, from before the
// storage was asked.
func (c *attrCache) keepEntry(in *fuse.InHeader, out *fuse.EntryOut, dir *node, name string, n *node, st *unix.Stat_t, s since) {
	c.fillEntry(out, dir, name, n, st, s.arrivals)
	if s.lease == 0 || n.holders.Load() > 0 || !c.longCache.mayKeepNames(dir, s.lease) || n.dropsPages(c.now()) {
		return
	}
	attr := c.longCache.mayKeepAttr(n)
	if !c.leases.keep(s, in, cachedName{dir.id, name}, cachedThing{node: n.id}) {
		return
	}
	out.SetEntryTimeout(c.opts.CacheTime)
	if attr {
		c.longCache.keepsAttr(n)
		out.SetAttrTimeout(c.opts.CacheTime)
	}
}

// keepNone tells the kernel, if it may keep that, that there is no file of a name.
func (c *attrCache) keepNone(in *fuse.InHeader, out *fuse.EntryOut, dir *node, name string, s since) bool {
	if s.lease == 0 || !c.longCache.mayKeepNames(dir, s.lease) || !c.leases.keep(s, in, cachedName{dir.id, name}, cachedThing{}) {
		return false
	}
	*out = fuse.EntryOut{}
	out.SetEntryTimeout(c.opts.CacheTime)
	return true
}

// keepAttr is answerAttr where nothing was changed, see keepEntry.
func (c *attrCache) keepAttr(in *fuse.InHeader, n *node, out *fuse.AttrOut) fuse.Status {
	s := c.leases.look()
	st := c.answerAttr(n, out, false)
	if st.Ok() && s.lease != 0 && c.longCache.mayKeepAttr(n) && c.leases.keep(s, in, cachedName{}, cachedThing{node: n.id}) {
		c.longCache.keepsAttr(n)
		out.SetTimeout(c.opts.CacheTime)
	}
	return st
}

func (c *attrCache) fillAttr(a *fuse.Attr, st *unix.Stat_t) {
	a.Ino = c.devices.ino(uint64(st.Dev), st.Ino)
	a.Size, a.Blocks, a.Blksize = uint64(st.Size), uint64(st.Blocks), uint32(st.Blksize)
	a.Atime, a.Atimensec = uint64(st.Atim.Sec), uint32(st.Atim.Nsec)
	a.Mtime, a.Mtimensec = uint64(st.Mtim.Sec), uint32(st.Mtim.Nsec)
	a.Ctime, a.Ctimensec = uint64(st.Ctim.Sec), uint32(st.Ctim.Nsec)
	a.Mode, a.Nlink, a.Uid, a.Gid = st.Mode, uint32(st.Nlink), st.Uid, st.Gid
	a.Rdev = uint32(st.Rdev)
}

// attrTTLOf is how long the kernel may keep the attributes of n that it is
// told now. It is called before the storage is asked, or what was found out
// before is compared with arrivals.all. While a handle of n waits for its open
// lock, or has let another node have it, every read(2) must come here before it
// looks at the size.
//
// Attributes of a file that is open without an open lock are not kept at all.
// Any explicit lock that is granted here would have to make the kernel forget
// them, as it may be the lock that protects the file; and the kernel drops an
// answer that is on its way at that moment. So a program that has just been
// granted another lock, and asks for the size of its file under that, would go
// on with the old size.
func (c *attrCache) attrTTLOf(n *node) time.Duration {
	if c.attrTTL <= 0 || n.unsettled.Load() > 0 || n.unprotected.Load() {
		return 0
	}
	n.attrTold.Swap(true)
	c.unprotected.noteKnown(n)
	c.entries.toldAttr(n.id, c.now())
	return c.attrTTL
}
