package fusefs

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// device is a descriptor of the connection to the kernel, beside the one of
// go-fuse's server, for a notification that the server has no method for.
type device struct{ fd int }

// From include/uapi/linux/fuse.h.
const (
	notifyInvalEntry = 3
	expireOnly       = 1 << 0
	outHeaderSize    = 16
	invalEntrySize   = 16
)

// expireEntry makes the kernel look a name up again at its next use (Linux
// 6.2). Unlike FUSE_NOTIFY_INVAL_ENTRY without this flag, for which go-fuse
// has EntryNotify, it does not tear down what is below the name: working
// directories keep their path, and what is mounted there stays mounted.
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
	_, err := unix.Write(d.fd, b)
	return err
}
