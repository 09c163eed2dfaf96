package fusefs

import (
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
func (f *fileSystem) tellAttr(n *node, a *fuse.Attr, st *unix.Stat_t) {
	f.fillAttr(a, st)
	f.tells(n, versionOf(st))
}

// tells notes what the kernel is told of a node. Afterwards refreshGen is
// compared with what it was before the storage was asked: a refresh changes it
// first, and then looks at what is noted here, so that one of the two finds out.
func (f *fileSystem) tells(n *node, v version) {
	n.toldAt.Store(f.now())
	n.cacheMu.Lock()
	n.told = v
	if n.isRegular() {
		n.sizes.add(v.size, f.now())
	}
	n.cacheMu.Unlock()
	f.keeps(n)
}

// tellNew corrects what the kernel is told of a node that other nodes may have
// changed since it was found out. One that has no anchor is not open, and what
// is told of it is looked at when it is opened, see opensAs.
func (f *fileSystem) tellNew(n *node, a *fuse.Attr) {
	f.tree.pin(n)
	defer f.tree.unpin(n)
	fd := f.tree.anchorOf(n)
	if fd < 0 {
		return
	}
	_ = f.untilNow(func() error {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		if err == nil {
			f.tellAttr(n, a, &st)
		}
		return err
	})
}

// untilNow calls tell, which asks the storage and tells the kernel, until no
// lock came here meanwhile. Where locks come faster than the storage answers it
// gives up, and the answer is one that comes late.
func (f *fileSystem) untilNow(tell func() error) error {
	const tries = 10
	for i := 1; ; i++ {
		gen := f.refreshGen.Load()
		if err := tell(); err != nil || i == tries || f.refreshGen.Load() == gen {
			return err
		}
	}
}

// dropOld makes the kernel forget the attributes of n, if it may have any, and
// ignore an old size that is on its way to it.
func (f *fileSystem) dropOld(n *node) {
	if n.attrTold.Swap(false) {
		f.forgetAttr(n)
		return
	}
	now := f.now()
	n.cacheMu.Lock()
	pending := n.sizes.pending(now)
	n.cacheMu.Unlock()
	fd := f.tree.anchorOf(n)
	if !pending || fd < 0 {
		return
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	n.cacheMu.Lock()
	differ := err != nil || n.sizes.differ(st.Size, now)
	n.cacheMu.Unlock()
	if differ {
		f.forgetAttr(n)
	}
}
