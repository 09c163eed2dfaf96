package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// cacheFS is the client of a storage that caches as much as close-to-open
// allows, and sees no less than that promises:
//
//   - what a program writes stays here until close(2) or fsync(2);
//   - what others wrote is seen by an open(2) that comes after their close,
//     and by nothing else: neither read(2) nor stat(2) asks the storage again
//     before the next open of the file, whatever statx(2) is told to force;
//   - names are looked up on the storage every time.
//
// Two mounts of it over one directory are two hosts' clients. It never forgets
// a file, which is all right for a test.
//
// While there is a file beside the storage with a name of its own and ".fails",
// it cannot write out the file whose name that has in it: it says so once, and
// what was to be written is lost.
//
// With folds it looks names up whatever their case.
type cacheFS struct {
	source                  string
	folds                   bool // names that differ in case only are one
	reads, fetched, flushed atomic.Int64

	mu    sync.Mutex
	nodes map[uint64]*cacheNode // by inode number
}

// cacheNode is a file.
type cacheNode struct {
	fs.Inode
	c  *cacheFS
	fd int // O_PATH

	mu    sync.Mutex
	attr  unix.Stat_t // as the programs of this client see it
	below unix.Stat_t // as the storage had it when it was asked last
	pages map[int64][]byte
	dirty []cacheExtent
}

type cacheExtent struct {
	off  int64
	data []byte
}

const cachePage = 4096

// serveCache mounts a cacheFS: cachefs SOURCE MOUNTPOINT [fold].
func serveCache(args []string) error {
	unix.Umask(0)
	most := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &most) // it holds a descriptor of every file
	c := &cacheFS{source: args[0], folds: len(args) > 2, nodes: map[uint64]*cacheNode{}}
	fd, err := unix.Open(args[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	root := &cacheNode{c: c, fd: fd}
	if err := unix.Fstat(fd, &root.attr); err != nil {
		return err
	}
	never := time.Duration(0)
	server, err := fs.Mount(args[1], root, &fs.Options{
		AttrTimeout: &never, EntryTimeout: &never,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true, FsName: args[0], Name: "cachefs"},
	})
	if err != nil {
		return err
	}
	server.Wait()
	return nil
}

func (n *cacheNode) path() string { return "/proc/self/fd/" + strconv.Itoa(n.fd) }

// child is the node of a name of the directory n.
func (n *cacheNode) child(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, *cacheNode, syscall.Errno) {
	fd, err := unix.Openat(n.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fs.ToErrno(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, nil, fs.ToErrno(err)
	}
	n.c.mu.Lock()
	x := n.c.nodes[st.Ino]
	if x == nil {
		x = &cacheNode{c: n.c, fd: fd, attr: st, below: st, pages: map[int64][]byte{}}
		n.c.nodes[st.Ino] = x
	} else {
		unix.Close(fd)
	}
	// Two lookups of one name must not both make the inode of x.
	i := n.NewInode(ctx, x, fs.StableAttr{Mode: st.Mode & unix.S_IFMT, Ino: st.Ino})
	n.c.mu.Unlock()
	x.fill(&out.Attr)
	return i, x, 0
}

// fill answers with what is cached.
func (n *cacheNode) fill(a *fuse.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.attr.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Fstat(n.fd, &n.attr) // only files are cached
	}
	st := syscall.Stat_t{
		Dev: n.attr.Dev, Ino: n.attr.Ino, Nlink: n.attr.Nlink, Mode: n.attr.Mode, Uid: n.attr.Uid, Gid: n.attr.Gid,
		Rdev: n.attr.Rdev, Size: n.attr.Size, Blksize: n.attr.Blksize, Blocks: n.attr.Blocks,
		Atim: syscall.Timespec(n.attr.Atim), Mtim: syscall.Timespec(n.attr.Mtim), Ctim: syscall.Timespec(n.attr.Ctim),
	}
	a.FromStat(&st)
}

func (n *cacheNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	i, _, errno := n.child(ctx, name, out)
	if errno != syscall.ENOENT || !n.c.folds {
		return i, errno
	}
	all, _ := os.ReadDir(n.path())
	for _, e := range all {
		if strings.EqualFold(e.Name(), name) {
			i, _, errno = n.child(ctx, e.Name(), out)
		}
	}
	return i, errno
}

func (n *cacheNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.fill(&out.Attr)
	return 0
}

func changed(a, b *unix.Stat_t) bool {
	return a.Size != b.Size || a.Mtim != b.Mtim || a.Ctim != b.Ctim
}

// revalidate is what an open does. REQUIRES: n.mu held.
func (n *cacheNode) revalidate() error {
	if err := n.writeOut(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return err
	}
	if changed(&st, &n.below) {
		clear(n.pages)
	}
	n.attr, n.below = st, st
	return nil
}

// writeOut is what close(2) and fsync(2) do. REQUIRES: n.mu held.
func (n *cacheNode) writeOut() error {
	if len(n.dirty) == 0 {
		return nil
	}
	n.c.flushed.Add(1)
	if name, err := os.ReadFile(n.c.source + ".fails"); err == nil {
		if path, _ := os.Readlink(n.path()); filepath.Base(path) == string(name) {
			n.dirty = nil
			return unix.ENOSPC
		}
	}
	fd, err := unix.Open(n.path(), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if changed(&st, &n.below) {
		clear(n.pages) // somebody else wrote, too: nothing that was read before counts
	}
	for _, x := range n.dirty {
		if _, err := unix.Pwrite(fd, x.data, x.off); err != nil {
			return err
		}
	}
	n.dirty = nil
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	n.attr, n.below = st, st
	return nil
}

func (n *cacheNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.revalidate(); err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	if flags&unix.O_TRUNC != 0 {
		if err := n.truncate(0); err != nil {
			return nil, 0, fs.ToErrno(err)
		}
	}
	return nil, 0, 0
}

func (n *cacheNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	fd, err := unix.Openat(n.fd, name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|int(flags)&(unix.O_EXCL|unix.O_TRUNC), mode)
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	unix.Close(fd)
	i, x, errno := n.child(ctx, name, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	if _, _, errno := x.Open(ctx, flags&^unix.O_TRUNC); errno != 0 {
		return nil, nil, 0, errno
	}
	x.fill(&out.Attr)
	return i, nil, 0, 0
}

// page is a page as programs see it. REQUIRES: n.mu held.
func (n *cacheNode) page(i int64) ([]byte, error) {
	if p, ok := n.pages[i]; ok {
		return p, nil
	}
	n.c.fetched.Add(1)
	fd, err := unix.Open(n.path(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	p := make([]byte, cachePage)
	if _, err := unix.Pread(fd, p, i*cachePage); err != nil {
		return nil, err
	}
	for _, x := range n.dirty {
		overlay(p, i*cachePage, x)
	}
	n.pages[i] = p
	return p, nil
}

func overlay(p []byte, at int64, x cacheExtent) {
	from, to := max(at, x.off), min(at+cachePage, x.off+int64(len(x.data)))
	if from < to {
		copy(p[from-at:to-at], x.data[from-x.off:])
	}
}

func (n *cacheNode) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.c.reads.Add(1)
	dest = dest[:max(0, min(int64(len(dest)), n.attr.Size-off))]
	for done := 0; done < len(dest); {
		at := off + int64(done)
		p, err := n.page(at / cachePage)
		if err != nil {
			return nil, fs.ToErrno(err)
		}
		done += copy(dest[done:], p[at%cachePage:])
	}
	return fuse.ReadResultData(dest), 0
}

func (n *cacheNode) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := cacheExtent{off, slices.Clone(data)}
	n.dirty = append(n.dirty, x)
	for i := off / cachePage; i <= (off+int64(len(data)))/cachePage; i++ {
		if p, ok := n.pages[i]; ok {
			overlay(p, i*cachePage, x)
		}
	}
	n.attr.Size = max(n.attr.Size, off+int64(len(data)))
	now := time.Now()
	n.attr.Mtim = unix.NsecToTimespec(now.UnixNano())
	n.attr.Ctim = n.attr.Mtim
	return uint32(len(data)), 0
}

func (n *cacheNode) Flush(context.Context, fs.FileHandle) syscall.Errno {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fs.ToErrno(n.writeOut())
}

func (n *cacheNode) Fsync(ctx context.Context, h fs.FileHandle, _ uint32) syscall.Errno {
	return n.Flush(ctx, h)
}

// truncate is not cached. REQUIRES: n.mu held.
func (n *cacheNode) truncate(size int64) error {
	if err := n.writeOut(); err != nil {
		return err
	}
	if err := unix.Truncate(n.path(), size); err != nil {
		return err
	}
	clear(n.pages)
	if err := unix.Fstat(n.fd, &n.attr); err != nil {
		return err
	}
	n.below = n.attr
	return nil
}

func (n *cacheNode) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	n.mu.Lock()
	err := n.writeOut()
	if mode, ok := in.GetMode(); ok && err == nil {
		err = unix.Chmod(n.path(), mode)
	}
	uid, okU := in.GetUID()
	gid, okG := in.GetGID()
	if (okU || okG) && err == nil {
		u, g := -1, -1
		if okU {
			u = int(uid)
		}
		if okG {
			g = int(gid)
		}
		err = unix.Fchownat(n.fd, "", u, g, unix.AT_EMPTY_PATH)
	}
	if size, ok := in.GetSize(); ok && err == nil {
		err = n.truncate(int64(size))
	}
	if m, ok := in.GetMTime(); ok && err == nil {
		a, okA := in.GetATime()
		if !okA {
			a = m
		}
		err = unix.UtimesNano(n.path(), []unix.Timespec{unix.NsecToTimespec(a.UnixNano()), unix.NsecToTimespec(m.UnixNano())})
	}
	var st unix.Stat_t
	if e := unix.Fstat(n.fd, &st); e == nil && err == nil {
		if st.Size != n.below.Size || st.Mtim != n.below.Mtim {
			clear(n.pages)
		}
		n.attr, n.below = st, st
	}
	n.mu.Unlock()
	n.fill(&out.Attr)
	return fs.ToErrno(err)
}

func (n *cacheNode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if err := unix.Mkdirat(n.fd, name, mode); err != nil {
		return nil, fs.ToErrno(err)
	}
	return n.Lookup(ctx, name, out)
}

func (n *cacheNode) Mknod(ctx context.Context, name string, mode, dev uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if err := unix.Mknodat(n.fd, name, mode, int(dev)); err != nil {
		return nil, fs.ToErrno(err)
	}
	return n.Lookup(ctx, name, out)
}

func (n *cacheNode) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if err := unix.Symlinkat(target, n.fd, name); err != nil {
		return nil, fs.ToErrno(err)
	}
	return n.Lookup(ctx, name, out)
}

func (n *cacheNode) Readlink(context.Context) ([]byte, syscall.Errno) {
	b := make([]byte, unix.PathMax)
	k, err := unix.Readlinkat(n.fd, "", b)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	return b[:k], 0
}

func (n *cacheNode) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	x := target.(*cacheNode)
	if err := unix.Linkat(unix.AT_FDCWD, x.path(), n.fd, name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return nil, fs.ToErrno(err)
	}
	x.changedAttr()
	return n.Lookup(ctx, name, out)
}

// changedAttr takes over what this client itself has done to the attributes.
func (n *cacheNode) changedAttr() {
	n.mu.Lock()
	defer n.mu.Unlock()
	var st unix.Stat_t
	if unix.Fstat(n.fd, &st) == nil {
		n.attr.Nlink, n.attr.Ctim = st.Nlink, st.Ctim
		if n.below.Mtim == st.Mtim && n.below.Size == st.Size {
			n.below.Ctim = st.Ctim
		}
	}
}

func (n *cacheNode) Unlink(_ context.Context, name string) syscall.Errno {
	i := n.GetChild(name)
	errno := fs.ToErrno(unix.Unlinkat(n.fd, name, 0))
	if i != nil && errno == 0 {
		i.Operations().(*cacheNode).changedAttr()
	}
	return errno
}

func (n *cacheNode) Rmdir(_ context.Context, name string) syscall.Errno {
	return fs.ToErrno(unix.Unlinkat(n.fd, name, unix.AT_REMOVEDIR))
}

func (n *cacheNode) Rename(_ context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	i := n.GetChild(name)
	errno := fs.ToErrno(unix.Renameat2(n.fd, name, to.(*cacheNode).fd, newName, uint(flags)))
	if i != nil && errno == 0 {
		i.Operations().(*cacheNode).changedAttr()
	}
	return errno
}

func (n *cacheNode) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	all, err := os.ReadDir(n.path())
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	var out []fuse.DirEntry
	for _, e := range all {
		i, err := e.Info()
		if err != nil {
			continue // gone meanwhile
		}
		st := i.Sys().(*syscall.Stat_t)
		out = append(out, fuse.DirEntry{Name: e.Name(), Mode: st.Mode, Ino: st.Ino})
	}
	return fs.NewListDirStream(out), 0
}

func (n *cacheNode) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	var st syscall.Statfs_t
	if err := syscall.Statfs(n.path(), &st); err != nil {
		return fs.ToErrno(err)
	}
	out.FromStatfsT(&st)
	return 0
}

// Counters of the client, as extended attributes of its root directory.
const (
	cacheReads   = "user.cachefs.reads"   // READ requests
	cacheFetched = "user.cachefs.fetched" // pages read from the storage
	cacheFlushed = "user.cachefs.flushed" // times that a file was written out
)

func (n *cacheNode) Getxattr(_ context.Context, name string, dest []byte) (uint32, syscall.Errno) {
	counter := map[string]*atomic.Int64{cacheReads: &n.c.reads, cacheFetched: &n.c.fetched, cacheFlushed: &n.c.flushed}[name]
	if counter == nil || !n.IsRoot() {
		return 0, unix.ENODATA
	}
	b := strconv.AppendInt(nil, counter.Load(), 10)
	if len(dest) == 0 {
		return uint32(len(b)), 0
	}
	if len(dest) < len(b) {
		return 0, unix.ERANGE
	}
	return uint32(copy(dest, b)), 0
}
