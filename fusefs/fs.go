package fusefs

import (
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fileSystem answers the requests of the kernel: each is a method of one of the
// types whose names end in Calls, and these ask the parts that have fields here.
//
// It is a RawFileSystem of its own because go-fuse's fs package drops the owner
// of a FLUSH, which ends POSIX locks, and the handle of a GETATTR, before which
// an open lock may have to be taken.
type fileSystem struct {
	*base
	*lockCalls
	*fileCalls
	*attrCalls
	*openCalls
	*nameCalls
	*dirCalls
	notServed

	removedRound time.Duration
	wakes        atomic.Int64 // how many wait in wakeReaders

	descriptors *descriptors
	actor       *actor
	private     *private
	stirring    *stirring

	unprotected *unprotected
	entries     *entries
	longCache   *longCache
	leases      *leases
	client      *client
	pages       *pageCache
	attrs       *attrCache
	waits       *waits
	records     *lockRecords
	rules       *rules
	openLocks   *openLocks
	yielder     *yielder
	coherence   *coherence
	fence       *fence
	finder      *finder
	retries     *retries
	moves       *moves
}

// notServed answers ENOSYS to what is not implemented: ACCESS, which the kernel
// does not send with default_permissions. It is below the types that serve the
// rest, so that their methods hide its own.
type notServed struct{ fuse.RawFileSystem }

// assemble makes the parts of f from its base. None asks a part that is made
// after it.
func (f *fileSystem) assemble() {
	b := f.base
	f.descriptors = &descriptors{base: b}
	f.actor = &actor{base: b, self: ownCredentials()}
	f.private = &private{base: b}
	f.stirring = &stirring{base: b, actor: f.actor}
	f.unprotected = &unprotected{base: b, all: make(map[*node]struct{}), known: make(map[*node]struct{})}
	f.entries = &entries{base: b}
	f.longCache = &longCache{base: b}
	f.leases = &leases{base: b, longCache: f.longCache, round: newLeaseRound(), kick: make(chan struct{}, 1)}
	f.client = &client{base: b, descriptors: f.descriptors, leases: f.leases,
		listed: &dirLists{base: b, descriptors: f.descriptors, leases: f.leases}}
	f.pages = &pageCache{base: b, unprotected: f.unprotected}
	f.attrs = &attrCache{base: b, unprotected: f.unprotected, client: f.client, entries: f.entries, longCache: f.longCache, leases: f.leases}
	f.waits = &waits{base: b, pages: f.pages}
	f.records = &lockRecords{base: b}
	f.rules = &rules{base: b}
	f.openLocks = &openLocks{base: b, unprotected: f.unprotected, records: f.records, rules: f.rules}
	f.yielder = &yielder{base: b, pages: f.pages, attrs: f.attrs, openLocks: f.openLocks, wishes: newWishes()}
	f.coherence = &coherence{base: b, stirring: f.stirring, client: f.client, unprotected: f.unprotected,
		pages: f.pages, attrs: f.attrs, entries: f.entries, longCache: f.longCache, leases: f.leases}
	f.fence = &fence{base: b, actor: f.actor, stirring: f.stirring, pages: f.pages, waits: f.waits,
		records: f.records, openLocks: f.openLocks, leases: f.leases,
		evidence: &evidence{base: b, actor: f.actor, client: f.client, touches: touches{b}}, touches: touches{b}}
	f.finder = &finder{base: b, descriptors: f.descriptors, actor: f.actor, private: f.private, client: f.client}
	f.retries = &retries{base: b, openLocks: f.openLocks, finder: f.finder}
	f.moves = &moves{base: b, finder: f.finder, rules: f.rules, yielder: f.yielder}
	f.lockCalls = &lockCalls{base: b, attrs: f.attrs, coherence: f.coherence, fence: f.fence,
		openLocks: f.openLocks, records: f.records, rules: f.rules}
	f.fileCalls = &fileCalls{base: b, actor: f.actor, attrs: f.attrs, fence: f.fence, unprotected: f.unprotected}
	f.attrCalls = &attrCalls{base: b, actor: f.actor, attrs: f.attrs, client: f.client, fence: f.fence, finder: f.finder,
		openLocks: f.openLocks, pages: f.pages, records: f.records, retries: f.retries, waits: f.waits}
	f.openCalls = &openCalls{base: b, actor: f.actor, attrs: f.attrs, client: f.client, descriptors: f.descriptors, fence: f.fence,
		finder: f.finder, openLocks: f.openLocks, pages: f.pages, private: f.private, retries: f.retries, waits: f.waits}
	f.nameCalls = &nameCalls{base: b, attrs: f.attrs, client: f.client, fence: f.fence, finder: f.finder,
		moves: f.moves, leases: f.leases, private: f.private, retries: f.retries, waits: f.waits}
	f.dirCalls = &dirCalls{base: b, actor: f.actor, attrs: f.attrs, client: f.client,
		descriptors: f.descriptors, finder: f.finder, longCache: f.longCache, leases: f.leases, private: f.private}
}

// errHidden is what an attempt to make a hidden name gets.
const errHidden = fuse.EPERM

func (f *fileSystem) String() string { return "dmxfs" }

func (f *fileSystem) SetDebug(bool) {}

func (f *fileSystem) OnUnmount() {}

// errStale makes the kernel look up the path again, once.
const errStale = fuse.Status(unix.ESTALE)

// fdPath is the name of a descriptor in /proc/self/fd. Opening it there opens
// the same file anew; calls that take only a path reach the file by it.
func fdPath(fd int) string { return "/proc/self/fd/" + itoa(fd) }

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
