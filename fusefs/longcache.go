package fusefs

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// maxLongCached bounds what the kernel is told to keep for long: as much is dropped,
// one by one, when another host is going to change something. The rest is kept
// for Options.TTL.
const maxLongCached = 16384

// longCache is what of names, attributes and lists of directories the kernel may
// keep for Options.CacheTime, which is as long as this node has the lease of names.
// Pages of files are not in it, see pagecache.go.
type longCache struct {
	*base
	mu    sync.Mutex
	names map[cachedName]cachedThing
	nodes map[uint64]cachedThing // of which only attributes were told, or a listing
	tids  map[uint32]cachedAnswer
	swept int64

	dropping map[cachedName]cachedThing // what drop has taken out of names
	renames  atomic.Uint64              // how many have begun, and how many are over: changes under mu

	one sync.Mutex // held by who drops: who comes meanwhile waits until that is done
}

// cachedName is a name in a directory, by its node ID. The zero value is none.
type cachedName struct {
	dir  uint64
	name string
}

// cachedThing is what was told of a name, or of a file.
type cachedThing struct {
	node    uint64 // 0: that there is no file of the name
	listing bool   // of a directory
	at      int64  // when, on the server's clock
}

// cachedAnswer is the last answer that a thread was given. The kernel takes it over
// when that goes on.
type cachedAnswer struct {
	request uint64
	at      int64
}

// add writes down what is going to be told, if there is room, and if it was found
// out after the last drop: s is from before. A name must not have been changed
// since: the kernel may have the answer for the place that it has moved to.
func (k *longCache) add(in *fuse.InHeader, x cachedName, what cachedThing, s since, now int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.arrivals.all.Load() != s.arrivals || x.name != "" && k.renames.Load() != s.renames {
		return false
	}
	k.begin()
	what.at = now
	if x.name != "" {
		if _, ok := k.names[x]; !ok && !k.hasRoom(now) {
			return false
		}
		k.names[x] = what
	} else {
		old, ok := k.nodes[what.node]
		if !ok && !k.hasRoom(now) {
			return false
		}
		what.listing = what.listing || old.listing
		k.nodes[what.node] = what
	}
	k.tids[in.Pid] = cachedAnswer{request: in.Unique, at: now}
	return true
}

// begin makes what add needs. REQUIRES: k.mu held.
func (k *longCache) begin() {
	if k.tids == nil {
		k.names, k.nodes, k.tids = make(map[cachedName]cachedThing), make(map[uint64]cachedThing), make(map[uint32]cachedAnswer)
	}
}

// renamed is called when the storage is just going to give what is called x the
// name y, and when it has, while the kernel holds the directories. The kernel keeps
// what it has of x as what it has of y, for as long as it was told for x. It
// reports whether there is such.
//
// The first call is for a drop that begins meanwhile, the second one for who was
// told of x meanwhile: done. With exchange, y gets the name x as well.
func (k *longCache) renamed(x, y cachedName, exchange, done bool) (kept bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renames.Add(1)
	of := func(x cachedName) (cachedThing, bool) {
		if a, ok := k.names[x]; ok {
			return a, true
		}
		a, ok := k.dropping[x]
		return a, ok
	}
	a, ofX := of(x)
	b, ofY := of(y)
	if ofX {
		k.begin()
		k.names[y] = a
	}
	if ofY && exchange {
		k.begin()
		k.names[x] = b
	}
	if done && !exchange {
		delete(k.names, x)
	}
	return ofX || ofY && exchange
}

// hasRoom forgets, at most once a second, what the kernel has forgotten by itself.
// REQUIRES: k.mu held.
func (k *longCache) hasRoom(now int64) bool {
	if len(k.names)+len(k.nodes) < maxLongCached && len(k.tids) < maxLongCached {
		return true
	}
	if now-k.swept < 1000 {
		return false
	}
	k.swept = now
	// The time counts from when an answer was taken over.
	over := now - (k.opts.CacheTime + tickSlack).Milliseconds() - takenOver
	maps.DeleteFunc(k.names, func(_ cachedName, x cachedThing) bool { return x.at < over })
	maps.DeleteFunc(k.nodes, func(_ uint64, x cachedThing) bool { return x.at < over && !x.listing })
	maps.DeleteFunc(k.tids, func(_ uint32, x cachedAnswer) bool { return x.at < now-takenOver })
	return len(k.names)+len(k.nodes) < maxLongCached && len(k.tids) < maxLongCached
}

// drop makes the kernel forget all that it may keep for long, and returns when it
// has. REQUIRES: nothing is added before arrivals or the lease say so again.
//
// It takes the locks of directories, see expireEntry. If one is held for as long as
// that, what is left goes by itself: drop takes no longer than Options.CacheTime.
func (k *longCache) drop(ctx context.Context) {
	k.one.Lock()
	defer k.one.Unlock()
	k.mu.Lock()
	names, nodes, tids := k.names, k.nodes, k.tids
	k.names, k.nodes, k.tids = nil, nil, nil
	k.dropping = names
	k.mu.Unlock()
	if len(names)+len(nodes) == 0 {
		return
	}
	defer func() {
		k.mu.Lock()
		k.dropping = nil
		k.mu.Unlock()
	}()
	for tid, a := range tids {
		k.awaitTakenOver(ctx, tid, a)
	}
	done := make(chan struct{})
	// What is about names waits for directories; what is not goes first.
	seen := make(map[uint64]bool, len(names)+len(nodes))
	for id, x := range nodes {
		seen[id] = true
		k.forget(id, x.listing)
	}
	for _, x := range names {
		if x.node != 0 && !seen[x.node] {
			seen[x.node] = true
			k.forget(x.node, false)
		}
	}
	k.background(func() {
		defer close(done)
		for x := range names {
			k.stats.EntryDrops.Add(1)
			_ = k.dev.expireEntry(x.dir, x.name)
		}
	})
	late := time.NewTimer(k.opts.CacheTime + tickSlack)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	case <-ctx.Done():
	}
}

// awaitTakenOver waits until a thread has gone on with an answer.
func (k *longCache) awaitTakenOver(ctx context.Context, tid uint32, a cachedAnswer) {
	var ran progress
	for k.now()-a.at <= takenOver && ctx.Err() == nil && !closed(k.conn.dead) {
		if !k.conn.readers.serves(a.request) && k.procs.hasGoneOn(tid, &ran) {
			return
		}
		time.Sleep(settleEvery)
	}
}

// forget makes the kernel forget the attributes of a file, and what a directory
// lists.
//
// The kernel also ignores an answer about the file that is on its way. That is no
// harm to a read(2) that was granted its lock and asks for the size: if another
// host has changed that, since it was told here, then there was a drop before the
// grant, and nothing has been written down of the file since, because it is open.
func (k *longCache) forget(id uint64, listing bool) {
	if listing {
		k.dev.forgetPages(id, 0, 0)
		return
	}
	if n := k.tree.get(id); n != nil && n.isRegular() {
		awaitEnds(k.base, n)
		n.notified.Add(1)
	}
	k.stats.AttrDrops.Add(1)
	k.dev.forgetAttr(id)
}

// mayKeepNames reports whether the kernel may keep names in dir for long: not
// where the directory has names that differ in case for one. lease is of
// leases.look: if the directory is made one of those, it ends.
func (k *longCache) mayKeepNames(dir *node, lease uint64) bool {
	if dir.key.dev != k.devices.root {
		return false // what is mounted here may be of any type
	}
	if x := dir.exact.Load(); x>>1 == lease {
		return x&1 != 0
	}
	x := lease << 1
	fd, err := unix.Openat(dir.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
		if err == unix.ENOTTY || err == nil && flags&casefolded == 0 {
			x |= 1
		}
		unix.Close(fd)
	}
	dir.exact.Store(x)
	return x&1 != 0
}

// casefolded is FS_CASEFOLD_FL of include/uapi/linux/fs.h.
const casefolded = 0x40000000

// mayKeepAttr reports whether the kernel may keep attributes of n for long: not
// what it is told while the file is open, see forget.
func (k *longCache) mayKeepAttr(n *node) bool {
	if n.key.dev != k.devices.root {
		return false // what is mounted here may be of any type
	}
	if !n.isRegular() {
		return true
	}
	n.longCached.Swap(true)
	return !n.hasHandles()
}

// keepsAttr notes that the kernel may keep the attributes of n for long.
func (k *longCache) keepsAttr(n *node) {
	n.toldAt.Store(k.now() + (k.opts.CacheTime - k.attrTTL).Milliseconds())
}

// endLongCached is called when n is opened by a handle that has to wait for its
// lock at its first use: a read(2) comes here then, before it looks at the size.
func (b *base) endLongCached(n *node) {
	if n.longCached.Swap(false) {
		n.notified.Add(1)
		b.dev.forgetAttr(n.id)
	}
}

// listing is what the kernel has in the pages of a directory. Guarded by
// nodeCache.cacheMu.
type listing struct {
	since   since
	version version
	until   int64 // on the server's clock
}
