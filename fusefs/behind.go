package fusefs

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The client of the storage may tell a size that is behind what it has taken from
// programs of this host. MooseFS's writes behind: it asks its server how long a file
// is, and then looks what of it is not written yet. What is written between the two
// counts for neither, and the kernel goes on with that size for as long as it may keep
// it, a second. A program that gets its lock from another one of this host would then
// write over what that has appended; between hosts all is written out first.
//
// So it is known how long programs of this host have made a file. If the storage
// tells less, the client is made to write out what it has, and asked again.

// madeSize is how long programs of this host have made a file, as far as it is not
// known to be shorter.
type madeSize struct {
	size atomic.Int64
	mu   sync.Mutex // held while the client is asked again
}

// isBehind reports whether a size of n that the storage has told may be an old one.
func (n *node) isBehind(size int64) bool {
	return size < n.made.size.Load() && n.isRegular() && !n.replaced.Load()
}

// mayHaveSize notes that the kernel may come to believe that n has a size.
func (n *node) mayHaveSize(size int64) {
	n.bounds.add(size)
	n.noteMost()
}

// mayReach is mayHaveSize for a program of this host that makes n so long, if it is shorter.
func (n *node) mayReach(size int64) {
	n.bounds.raise(size)
	n.noteMost()
}

// cut is a truncation of n by a program of this host: call is the system call. See answersCut.
func (n *node) cut(size int64, call func() error) error {
	return n.made.cut(size, func() error { return lowerBy(&n.bounds.most, size, n.bounds.raise, call) })
}

// answersCut is called before the program is answered that has truncated n: most is what
// sizeBounds.most was before it waited for anything. The kernel takes over the new size with the
// answer, whatever it was notified of, unless that is an error.
func (n *node) answersCut(most int64, st fuse.Status) {
	if st.Ok() {
		n.noteCut()
	} else {
		n.mayReach(most)
	}
}

func (m *madeSize) raise(size int64) {
	for old := m.size.Load(); size > old && !m.size.CompareAndSwap(old, size); {
		old = m.size.Load()
	}
}

// cut is a truncation by a program of this host: call is the system call. What is
// written meanwhile stays noted, as if it had come afterwards.
func (m *madeSize) cut(size int64, call func() error) error {
	return lowerBy(&m.size, size, m.raise, call)
}

// lowerBy lowers x to size, if it is more, before call; raise is called with what it was if that
// fails.
func lowerBy(x *atomic.Int64, size int64, raise func(int64), call func() error) error {
	old := x.Load()
	for size < old && !x.CompareAndSwap(old, size) {
		old = x.Load()
	}
	err := call()
	if err != nil {
		raise(old)
	}
	return err
}

// settle is called when all is written out of what made the file so long, and the
// client of the storage has looked: what it tells is true.
func (m *madeSize) settle(fd int, made int64) error {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Fstat(fd, &st) })
	if err == nil && st.Size < made {
		m.size.CompareAndSwap(made, st.Size)
	}
	return err
}

// lengthened notes that a program of this host has made the file of h so long, if it
// was shorter. It is called before the program is answered.
func (f *fence) lengthened(h *handle, size int64) {
	f.wrote(h) // before: who finds the size sees to it that it is written out
	h.n.made.raise(size)
}

// errBehind: the kernel believes a size that is behind.
var errBehind = errors.New("the storage's client tells an old size")

// behindTries is how often a size is asked for that is behind: more than once only if
// another program makes the file longer meanwhile.
const behindTries = 100

// sizeOf calls ask, which asks the storage for the size of n, until that is not
// behind. n is pinned; if it has no anchor what was told first has to do, and the
// error is errBehind. REQUIRES: no handle.mu held.
func (c *attrCache) sizeOf(n *node, ask func() (size int64, err error)) error {
	for range behindTries {
		size, err := ask()
		if err != nil || !n.isBehind(size) {
			return err
		}
		if err := c.catchUp(n); err != nil {
			return err
		}
	}
	return errBehind
}

// fstat is fstat(2) of n, which fd is of, see sizeOf.
func (c *attrCache) fstat(n *node, fd int, st *unix.Stat_t) error {
	return c.sizeOf(n, func() (int64, error) {
		err := retryEINTR(func() error { return unix.Fstat(fd, st) })
		return st.Size, err
	})
}

// correct looks again at n, which st describes, if its size is behind.
func (c *attrCache) correct(n *node, st *unix.Stat_t) error {
	if !n.isBehind(st.Size) {
		return nil
	}
	c.tree.pin(n)
	defer c.tree.unpin(n)
	return c.fstat(n, c.tree.anchorOf(n), st)
}

// catchUp makes the client of the storage write out what it has of n, and look. If it
// tells less even then somebody has made the file shorter. n is pinned.
// REQUIRES: no handle.mu held.
func (c *attrCache) catchUp(n *node) error {
	m := &n.made
	m.mu.Lock()
	defer m.mu.Unlock()
	fd := c.tree.anchorOf(n)
	if fd < 0 {
		return errBehind
	}
	c.stats.CaughtUp.Add(1)
	made := m.size.Load()
	for _, h := range n.openHandles() {
		h.mu.RLock()
		_ = h.sync() // a failure is told, see unwritten; and then the file may be shorter
		h.mu.RUnlock()
	}
	_ = c.client.pass(n) // if the file is gone, what is open of it stays
	if err := c.client.fetchAttr(fd); err != nil {
		return err
	}
	return m.settle(fd, made)
}

// put is pwrite(2) through h, or appends. The kernel below appends at the end that it
// believes in: where the storage's client is a daemon, that is looked at before, and
// errBehind is an error. Nobody else of this host appends meanwhile.
func (fc *fileCalls) put(h *handle, b []byte, off int64, appends bool) (n int, err error) {
	if appends && fc.storage.Userspace {
		is, err := attrOf(h.fd, unix.AT_STATX_DONT_SYNC)
		if err != nil {
			return 0, err
		}
		if h.n.isBehind(is.size) {
			return 0, errBehind
		}
		off, appends = is.size, false
	}
	err = fc.gate().Write(func() (err error) {
		n, err = pwrite(h.fd, b, off, appends)
		return err
	})
	if n > 0 {
		fc.fence.lengthened(h, off+int64(n))
	}
	return n, err
}
