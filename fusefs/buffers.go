package fusefs

import (
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// smallSize is enough for all answers but those with data, see room.
const smallSize = 512

// mediumSize is enough for most answers with data, many of which there may be at
// a time.
const mediumSize = 32 << 10

// largeSize is enough for all. At its begin is room for the headers, so that
// data begins at a page, as O_DIRECT wants it.
const (
	largeSize = maxPiece + 2*pageSize
	pageSize  = 4096
	writeHead = int(unsafe.Sizeof(fuse.WriteIn{}))
	readHead  = int(unsafe.Sizeof(fuse.OutHeader{}))
)

// newBuffer is a new buffer of size bytes that begins at a page.
func newBuffer(size int) *[]byte {
	b := make([]byte, size+pageSize)
	past := int(uintptr(unsafe.Pointer(&b[0])) % pageSize)
	b = b[(pageSize-past)%pageSize:][:size]
	return &b
}

// room is how much data the answer to a request may have.
func room(in []byte) int {
	p := unsafe.Pointer(&in[0])
	switch h := head(in); {
	case h.Opcode == opReadlink:
		return unix.PathMax
	case (h.Opcode == opRead || h.Opcode == opReadDir || h.Opcode == opReadDirPlus) && len(in) >= int(unsafe.Sizeof(fuse.ReadIn{})):
		return int((*fuse.ReadIn)(p).Size)
	case (h.Opcode == opGetXAttr || h.Opcode == opListXAttr) && len(in) >= int(unsafe.Sizeof(fuse.GetXAttrIn{})):
		return int((*fuse.GetXAttrIn)(p).Size)
	case h.Opcode == opIoctl && len(in) >= int(unsafe.Sizeof(fuse.IoctlIn{})):
		return int((*fuse.IoctlIn)(p).OutSize)
	}
	return 0
}

// phantom is a file that go-fuse answers for in the root of every mount. Its own
// reader of requests needs it; here it would be a file that is nowhere.
const phantom = ".go-fuse-epoll-hack"

func asksForPhantom(in []byte) bool {
	h := head(in)
	return h.Opcode == opLookup && h.NodeId == fuse.FUSE_ROOT_ID && string(in[headSize:]) == phantom+"\x00"
}
