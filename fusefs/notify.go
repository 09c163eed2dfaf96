package fusefs

import (
	"encoding/binary"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// device is a descriptor of the connection to the kernel, for what is told it
// unasked.
type device struct {
	fd       int
	pause    *pausing
	requests *Requests // or nil
}

// write sends a notification.
func (d device) write(b []byte) error {
	if !d.pause.tell() {
		return locks.ErrBequeathed
	}
	defer d.pause.told()
	defer d.enters()()
	_, err := unix.Write(d.fd, b)
	return err
}

// enters notes that this thread is in a notification, until the result is called: whoever
// takes over from a process that was killed then need not wait for it.
func (d device) enters() (left func()) {
	if d.requests == nil {
		return func() {}
	}
	runtime.LockOSThread()
	over := d.requests.enters()
	return func() { over(); runtime.UnlockOSThread() }
}

// From include/uapi/linux/fuse.h.
const (
	notifyInvalInode = 2
	notifyInvalEntry = 3
	notifyStore      = 4
	notifyDelete     = 6
	expireOnly       = 1 << 0
	outHeaderSize    = 16
	invalInodeSize   = 24
	invalEntrySize   = 16
	deleteSize       = 24
	storeSize        = 24
)

// forgetPages makes the kernel write out and drop pages of a node, from off on,
// so many bytes or, with 0, to the end; and forget its attributes. It waits for
// pages that are locked for a READ or WRITE.
func (d device) forgetPages(node uint64, off, length int64) { d.invalInode(node, off, length) }

// forgetAttr makes the kernel forget the attributes of a node.
func (d device) forgetAttr(node uint64) { d.invalInode(node, -1, 0) }

// invalInode notifies the kernel; that it does not know the node is no error.
func (d device) invalInode(node uint64, off, length int64) {
	var b [outHeaderSize + invalInodeSize]byte
	e := binary.NativeEndian
	e.PutUint32(b[0:], uint32(len(b)))
	e.PutUint32(b[4:], notifyInvalInode)
	e.PutUint64(b[16:], node)
	e.PutUint64(b[24:], uint64(off))
	e.PutUint64(b[32:], uint64(length))
	_ = d.write(b[:])
}

// grow makes the kernel believe that a file is so long at least, whatever it has asked
// for before: it is told to store a byte there. The kernel does not get that byte,
// which comes from where nothing is, and so leaves what it has of the page. It waits for
// the page, if that is locked for a READ or WRITE, after it has taken over the size.
func (d device) grow(node uint64, size int64) {
	var b [outHeaderSize + storeSize]byte
	e := binary.NativeEndian
	e.PutUint32(b[0:], uint32(len(b)+1))
	e.PutUint32(b[4:], notifyStore)
	e.PutUint64(b[16:], node)
	e.PutUint64(b[24:], uint64(size-1))
	e.PutUint32(b[32:], 1)
	if !d.pause.tell() {
		return
	}
	defer d.pause.told()
	defer d.enters()()
	nowhere, err := nothing()
	if err != nil {
		return
	}
	parts := [2]unix.Iovec{{Base: &b[0]}, {Base: &nowhere[0]}}
	parts[0].SetLen(len(b))
	parts[1].SetLen(1)
	_, _, _ = unix.Syscall(unix.SYS_WRITEV, uintptr(d.fd), uintptr(unsafe.Pointer(&parts[0])), uintptr(len(parts)))
}

// nothing is memory that cannot be read.
var nothing = sync.OnceValues(func() ([]byte, error) {
	return unix.Mmap(-1, 0, pageSize, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
})

// expireEntry makes the kernel look a name up again at its next use (Linux
// 6.2). Unlike FUSE_NOTIFY_INVAL_ENTRY without this flag it does not tear down
// what is below the name: working directories keep their path, and what is
// mounted there stays mounted.
//
// The kernel takes the lock of the directory. It must therefore not be called
// by a request for which the kernel holds that: anything that makes or removes
// names.
func (d device) expireEntry(dir uint64, name string) error {
	size := outHeaderSize + invalEntrySize + len(name) + 1
	b := make([]byte, size)
	e := binary.NativeEndian
	e.PutUint32(b[0:], uint32(size))
	e.PutUint32(b[4:], notifyInvalEntry)
	// b[8:16] is the number of the request that is answered: none.
	e.PutUint64(b[16:], dir)
	e.PutUint32(b[24:], uint32(len(name)))
	e.PutUint32(b[28:], expireOnly)
	copy(b[32:], name)
	return d.write(b)
}

// removed tells the kernel that a name is gone, and led to the last of the
// file, if it still knows the name as that of the file. It is the same to
// programs as unlink(2); those that hold on to the file keep it.
//
// The kernel takes the locks of the directory and of the file, see expireEntry.
// The file must not be open: the second one is held for as long as a write(2)
// takes.
func (d device) removed(dir, node uint64, name string) {
	b := make([]byte, outHeaderSize+deleteSize+len(name)+1)
	e := binary.NativeEndian
	e.PutUint32(b[0:], uint32(len(b)))
	e.PutUint32(b[4:], notifyDelete)
	e.PutUint64(b[16:], dir)
	e.PutUint64(b[24:], node)
	e.PutUint32(b[32:], uint32(len(name)))
	copy(b[outHeaderSize+deleteSize:], name)
	_ = d.write(b)
}
