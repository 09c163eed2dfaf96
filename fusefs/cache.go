package fusefs

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// nodeCache is the part of a node that is about what the kernel, and the
// client of the storage below, may have cached of it.
type nodeCache struct {
	// cached: the kernel may have pages. Set before every answer that puts
	// some there.
	cached atomic.Bool
	// attrTold: the kernel was told attributes that it may keep. Set before
	// the storage is asked. It does not help to know how long it may keep
	// them: that counts from when it gets the answer.
	attrTold atomic.Bool

	exact      atomic.Uint64 // of a directory: whether names that differ in case are two, see mayKeepNames
	longCached atomic.Bool   // the kernel may keep the attributes for long, see longCache

	toldAt atomic.Int64 // when the kernel was told attributes last, on the server's clock
	newsAt atomic.Int64 // when it was told last what has it drop pages, likewise; 0: never

	// filled counts the answers that may have put pages there; empty is what it
	// was when there were none last. looking: pages are being dropped to see
	// whether they are in use.
	filled, empty atomic.Uint64
	looking       atomic.Bool

	// blocked is the number of parked that are in the way of pages, holders of
	// those that hold the node. They change under cacheMu.
	blocked, holders atomic.Int32
	lookers          lookers // the threads that were told a name lately

	seen   seenAt // by the client of the storage
	bounds sizeBounds
	made   madeSize
	writes writes
	again  atomic.Pointer[rereading]  // or nil
	failed atomic.Pointer[failedRead] // the last one that is made again; or nil
	// notified is how many notifications of it were sent, or are about to be.
	notified atomic.Uint64

	cacheMu sync.Mutex
	version version // at the end of an open lock, see noteVersion
	look    look
	told    version   // what the kernel was told last
	sizes   toldSizes // what else it may be about to believe
	listing listing
	answers map[*sizeAnswer]struct{} // see settled.go
	parked  map[*parkedRequest]struct{}
	// park and unpark are closed when one comes, or goes, that is in the way; nil if nobody wants to know.
	park, unpark chan struct{}
	onlookers    map[uint32]*stand // see stuck.go
	watched      bool              // watchHolders looks
	drops        drops
}

// unknownPages is no value of filled.
const unknownPages = math.MaxUint64

// fills notes that an answer may put pages of n into the kernel's cache.
func (n *nodeCache) fills() {
	n.filled.Add(1)
	n.cached.Swap(true)
}

// version tells whether a file is still as the kernel has it in its pages.
type version struct {
	known        bool
	young        bool   // it was noted so soon after the last change that times do not tell
	gen          uint64 // arrivals.explicit when it was noted
	size         int64
	mtime, ctime unix.Timespec
}

func versionOf(st *unix.Stat_t) version {
	return version{known: true, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
}

func versionOfX(st *unix.Statx_t) version {
	time := func(t unix.StatxTimestamp) unix.Timespec { return unix.Timespec{Sec: t.Sec, Nsec: int64(t.Nsec)} }
	return version{known: true, size: int64(st.Size), mtime: time(st.Mtime), ctime: time(st.Ctime)}
}

// look is since when this host knows a file as it is now. Guarded by nodeCache.cacheMu.
type look struct {
	of    version
	since int64 // on the server's clock
	clean int64 // when the kernel had no pages of it last: what it has was read later
}

// sees notes what the file is like. REQUIRES: n.cacheMu held.
func (l *look) sees(v version, now int64) {
	if l.of != v {
		l.of, l.since = v, now
	}
}

// tells reports whether a change of the file since the kernel has read it has given it
// other times. When it was seen first as it is its storage had that time, or a later
// one; and what was read a step of the storage's clock later can be changed only at
// a later time of that clock.
func (l *look) tells(v version) bool {
	step := clockStep
	if v.mtime.Nsec == 0 && v.ctime.Nsec == 0 {
		step = secondsStep
	}
	return l.of == v && l.clean >= l.since+step.Milliseconds()
}

const (
	// clockStep is longer than the steps in which storage has times, of a clock that
	// ticks 100 times a second; secondsStep is, for one with whole seconds, or two.
	clockStep   = 50 * time.Millisecond
	secondsStep = 2500 * time.Millisecond
)

// emptied notes that the kernel is made to drop its pages of n, which st describes.
func (n *nodeCache) emptied(st *unix.Stat_t, now int64) {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	n.look.sees(versionOf(st), now)
	n.look.clean = now
}

// noteVersion remembers what the file is like at the end of an open lock: what
// was cached under the lock is still good under the next one if nobody wrote
// meanwhile. REQUIRES: h's open lock held by this node.
func (c *attrCache) noteVersion(h *handle) {
	var st unix.Stat_t
	gen := c.arrivals.explicit.Load() // before: what is seen may be older than what a refresh brings
	err := unix.Fstat(h.fd, &st)
	n := h.n
	n.cacheMu.Lock()
	n.version = version{}
	if err == nil {
		n.look.sees(versionOf(&st), c.now())
		n.version = c.versionAt(&n.look, &st, gen)
	}
	n.cacheMu.Unlock()
	c.unprotected.noteKnown(n)
}

// versionAt is what st says about a file whose open lock ends now.
func (c *attrCache) versionAt(l *look, st *unix.Stat_t, gen uint64) version {
	v := versionOf(st)
	exact := c.storage.ExactTimes && st.Ctim.Nsec != 0 // else they may be whole seconds
	v.young = !exact && (c.tree.ids.paths || !l.tells(v)) && isYoung(st, time.Now())
	v.gen = gen
	return v
}

// unchanged reports whether the file is as noteVersion found it, and nobody on
// another node has had a lock to write it since. Where its times cannot tell,
// somebody may have changed it under an explicit lock, also one that never came here;
// or, where locks go by path, have put another file in its place, which takes no lock of it.
func (c *attrCache) unchanged(n *node, st *unix.Stat_t) bool {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	now := versionOf(st)
	now.gen, now.young = n.version.gen, n.version.young
	if !n.version.known || n.version != now || now.young {
		return false
	}
	if !c.tree.ids.paths && now.gen == c.arrivals.explicit.Load() {
		return true
	}
	return st.Mtim.Nsec != 0 || st.Ctim.Nsec != 0 // else whole seconds
}

// youngFor is how long a file can be changed again without another time: file
// systems take the time of the last tick of a clock, some milliseconds ago, and
// that clock may be another machine's, which is not quite the same.
const youngFor = 2 * time.Second

// isYoung reports whether st may be what the file was like before a change that
// comes after now.
func isYoung(st *unix.Stat_t, now time.Time) bool {
	return now.Sub(time.Unix(st.Mtim.Unix())) < youngFor || now.Sub(time.Unix(st.Ctim.Unix())) < youngFor
}

// dropsPages reports whether the kernel may be dropping many pages of n, since it was told
// another size or time. It does so before it takes over for how long it may keep the name:
// that comes when names that are old have been dropped, and by hasGoneOn the thread seems
// to have gone on.
func (n *nodeCache) dropsPages(now int64) bool {
	at := n.newsAt.Load()
	return at != 0 && now-at <= takenOver
}

// manyPages is how large a file is, in bytes, whose pages take a while to be dropped: of
// 300 MB some 50 ms, and a tenth of a millisecond of this.
const manyPages = 1 << 20

func (n *nodeCache) forgetVersion() {
	n.cacheMu.Lock()
	n.version = version{}
	n.cacheMu.Unlock()
}

// dropAttr makes the kernel forget the attributes of n, if it may have any.
func (c *attrCache) dropAttr(n *node) {
	if n.attrTold.Load() {
		c.forgetAttr(n)
	}
}

func (c *attrCache) forgetAttr(n *node) {
	c.stats.AttrDrops.Add(1)
	awaitEnds(c.base, n)
	n.attrForgotten()
	c.dev.forgetAttr(n.id)
}

// attrForgotten is called before the kernel is notified to forget the attributes of n: not for those
// of answers after it. Until then who opens the file finds what the kernel may believe.
func (n *nodeCache) attrForgotten() {
	n.attrTold.Store(false)
	n.cacheMu.Lock()
	n.sizes = toldSizes{}
	n.cacheMu.Unlock()
	n.notified.Add(1)
}

// opensAs is called when a file is opened that st describes: if the kernel
// believes something else, or is about to, it has to ask again.
func (c *attrCache) opensAs(n *node, st *unix.Stat_t) {
	n.cacheMu.Lock()
	differs, older := n.told != versionOf(st), n.sizes.differ(st.Size, c.now())
	n.cacheMu.Unlock()
	switch {
	case older:
		c.forgetAttr(n)
	case differs:
		c.dropAttr(n)
	}
}

// tickSlack is how much longer than it was told the kernel may keep something:
// it counts in its own ticks, of 10 ms at most, and rounds up twice.
const tickSlack = 20 * time.Millisecond

// dropping reports whether the kernel is dropping the pages of n.
func (n *nodeCache) dropping() bool {
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	return n.drops.now != nil
}
