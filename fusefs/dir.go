package fusefs

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// dirCalls serves requests about directories and what is in them.
type dirCalls struct {
	*base
	actor       *actor
	attrs       *attrCache
	client      *client
	descriptors *descriptors
	finder      *finder
	longCache   *longCache
	leases      *leases
	private     *private
}

// dirHandle is an open directory. Positions in it are those of the storage,
// so that telldir and seekdir mean the same there and here, and hold as long.
type dirHandle struct {
	n *node // pinned

	in fuse.InHeader // of the request that opened it

	mu   sync.Mutex
	fd   int    // -1: it was not needed yet
	rest []byte // what was read and not yet told
	next uint64 // the position of rest, or of fd if there is none
	read bool

	id    uint64 // under which the ledger has it
	line  uint32 // of the ledger
	lease uint64 // under which the kernel may list from its pages; 0: it may not

	opened int64 // on the server's clock
}

const dirBufferSize = 64 << 10

var dirBuffers = sync.Pool{New: func() any {
	b := make([]byte, dirBufferSize)
	return &b
}}

func (dc *dirCalls) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n, errno := dc.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	since := dc.leases.look()
	if err := dc.client.listAnew(n); err != nil {
		dc.tree.unpin(n)
		return status(err)
	}
	d := &dirHandle{n: n, fd: -1, in: in.InHeader, opened: dc.now()}
	if out.OpenFlags = dc.keepListing(&in.InHeader, n, since); out.OpenFlags != 0 {
		d.lease = since.lease
	}
	// What the kernel has it lists without us.
	if out.OpenFlags&fuse.FOPEN_KEEP_CACHE == 0 {
		if err := dc.open(d); err != nil {
			dc.tree.unpin(n)
			return status(err)
		}
	}
	out.Fh = dc.newID()
	dc.ledger.dir(out.Fh, d)
	dc.dirs.put(out.Fh, d)
	return fuse.OK
}

// open opens the directory of d on the storage, if it is not.
// REQUIRES: d.mu held, or nobody else knows d.
func (dc *dirCalls) open(d *dirHandle) error {
	if d.fd >= 0 {
		return nil
	}
	fd, err := dc.descriptors.withRoom(func() (fd int, err error) {
		err = dc.actor.allowed(&d.in, func() (err error) {
			fd, err = unix.Openat(d.n.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			return err
		})
		return fd, err
	})
	if err == nil {
		if d.fd = fd; d.id != 0 {
			dc.ledger.dir(d.id, d)
		}
	}
	return err
}

// keepListing decides whether the kernel may list a directory, which was just
// opened, from its pages, and fill them: the result are flags for the answer.
func (dc *dirCalls) keepListing(in *fuse.InHeader, n *node, s since) (flags uint32) {
	var st unix.Stat_t
	if s.lease == 0 || n.key.dev != dc.devices.root || unix.Fstat(n.fd, &st) != nil ||
		!dc.leases.keep(s, in, cachedName{}, cachedThing{node: n.id, listing: true}) {
		return 0
	}
	s.renames = 0 // the kernel knows of those
	now := listing{since: s, version: versionOf(&st)}
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	if was := n.listing; was.until > dc.now() {
		if now.until = was.until; now == was {
			return fuse.FOPEN_CACHE_DIR | fuse.FOPEN_KEEP_CACHE
		}
	}
	now.until = dc.now() + dc.opts.CacheTime.Milliseconds()
	n.listing = now
	return fuse.FOPEN_CACHE_DIR
}

// listed is called when all of a directory was told. What the kernel has put into
// its pages it may list again through the same handle: not if that has been
// outlasted by the handle.
func (dc *dirCalls) listed(in *fuse.InHeader, d *dirHandle) {
	if d.lease == 0 || dc.leases.stillKeeps(d.lease) {
		return
	}
	id, a := d.n.id, cachedAnswer{request: in.Unique, at: dc.now()}
	dc.background(func() {
		dc.longCache.awaitTakenOver(context.Background(), in.Pid, a)
		dc.dev.forgetPages(id, 0, 0)
	})
}

func (dc *dirCalls) ReleaseDir(in *fuse.ReleaseIn) {
	if d := dc.dirs.take(in.Fh); d != nil {
		dc.ledger.closesDir(d)
		closeFD(d.fd)
		dc.tree.unpin(d.n)
	}
}

func (dc *dirCalls) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	d := dc.dirs.get(in.Fh)
	if d == nil {
		return fuse.EBADF
	}
	d.mu.Lock()
	err := dc.open(d)
	d.mu.Unlock()
	if err != nil {
		return status(err)
	}
	return status(retryEINTR(func() error { return unix.Fsync(d.fd) }))
}

func (dc *dirCalls) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return dc.readDir(in, func(d *dirHandle, e fuse.DirEntry) bool { return out.AddDirEntry(e) })
}

func (dc *dirCalls) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	since := dc.leases.look()
	return dc.readDir(in, func(d *dirHandle, e fuse.DirEntry) bool {
		entry := out.AddDirLookupEntry(e)
		if entry == nil {
			return false
		}
		if e.Name == "." || e.Name == ".." || dc.storage.KeepsNames {
			return true // the kernel takes nothing but the name
		}
		// A file that cannot be looked up is told by its name alone, and the
		// kernel asks again when somebody wants to know more.
		if n, st, err := dc.finder.find(&in.InHeader, d.n, e.Name); err == nil {
			dc.attrs.keepEntry(&in.InHeader, entry, d.n, e.Name, n, &st, since)
			out.FixMode(st.Mode)
		}
		return true
	})
}

// readDir tells entries from a position on, until tell has no room for more.
func (dc *dirCalls) readDir(in *fuse.ReadIn, tell func(*dirHandle, fuse.DirEntry) bool) fuse.Status {
	d := dc.dirs.get(in.Fh)
	if d == nil {
		return fuse.EBADF
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read && in.Offset == 0 { // rewinddir(3)
		if err := dc.client.listAnew(d.n); err != nil {
			return status(err)
		}
	}
	d.read = true
	if err := dc.open(d); err != nil {
		return status(err)
	}
	if in.Offset != d.next {
		if _, err := unix.Seek(d.fd, int64(in.Offset), unix.SEEK_SET); err != nil {
			return status(err)
		}
		d.rest, d.next = nil, in.Offset
	}
	buf := dirBuffers.Get().(*[]byte)
	defer dirBuffers.Put(buf)
	// What is left over lives in memory of its own, so that a directory that
	// is open and not being read costs none.
	rest := d.rest
	defer func() { d.rest = bytes.Clone(rest) }()
	told := false
	for {
		if len(rest) == 0 {
			n := 0
			dc.leases.reads(d.opened)
			err := retryEINTR(func() (err error) {
				n, err = unix.Getdents(d.fd, *buf)
				return err
			})
			dc.leases.reads(d.opened)
			if err != nil && !told {
				return status(err)
			}
			if err != nil || n == 0 {
				dc.listed(&in.InHeader, d)
				return fuse.OK
			}
			rest = (*buf)[:n]
		}
		e, size := parseDirent(rest)
		if !dc.private.hidden(d.n, e.Name) {
			e.Ino = dc.devices.ino(d.n.key.dev, e.Ino)
			if !tell(d, e) {
				return fuse.OK
			}
			told = true
		}
		rest = rest[size:]
		d.next = e.Off
	}
}

// direntSize is how long the first one is.
func direntSize(b []byte) int { return int(binary.NativeEndian.Uint16(b[16:])) }

// parseDirent reads one struct linux_dirent64; see getdents(2).
func parseDirent(b []byte) (e fuse.DirEntry, size int) {
	size = direntSize(b)
	name := b[19:size]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return fuse.DirEntry{
		Ino:  binary.NativeEndian.Uint64(b),
		Off:  binary.NativeEndian.Uint64(b[8:]),
		Mode: uint32(b[18]) << 12,
		Name: string(name),
	}, size
}
