package fusefs

// passage is what a request does at the fence, see change.
type passage int

const (
	// changesNothing on the storage; or, as OPEN and SETLK, it is about locks.
	changesNothing passage = iota
	// changesByName: the locks of the program that asks are looked at.
	changesByName
	// changesByHandle: so are those of the open file through which it comes.
	changesByHandle
)

// operation is a kind of request.
type operation struct {
	name string
	// method of fuse.RawFileSystem that serves it; empty: go-fuse does.
	method string
	fence  passage
}

// RequestName is the name of a request that is served, by its number; empty if
// there is no such request.
func RequestName(opcode uint32) string { return operationOf(opcode).name }

// operationOf is what such a request does; a request that is not served has no name.
func operationOf(opcode uint32) operation {
	if opcode >= uint32(len(operations)) {
		return operation{}
	}
	return operations[opcode]
}

// operations are the requests that are served, by their number in
// include/uapi/linux/fuse.h. One that is not here is answered with ENOSYS, so
// nothing that is new to go-fuse or to the kernel gets by the fence.
var operations = [...]operation{
	1:             {name: "LOOKUP", method: "Lookup"},
	2:             {name: "FORGET", method: "Forget"},
	opGetAttr:     {name: "GETATTR", method: "GetAttr"},
	opSetAttr:     {name: "SETATTR", method: "SetAttr", fence: changesByName}, // with a size by handle
	opReadlink:    {name: "READLINK", method: "Readlink"},
	6:             {name: "SYMLINK", method: "Symlink", fence: changesByName},
	8:             {name: "MKNOD", method: "Mknod", fence: changesByName},
	9:             {name: "MKDIR", method: "Mkdir", fence: changesByName},
	10:            {name: "UNLINK", method: "Unlink", fence: changesByName},
	11:            {name: "RMDIR", method: "Rmdir", fence: changesByName},
	12:            {name: "RENAME", method: "Rename", fence: changesByName},
	13:            {name: "LINK", method: "Link", fence: changesByName},
	opOpen:        {name: "OPEN", method: "Open", fence: changesByHandle}, // with O_TRUNC
	opRead:        {name: "READ", method: "Read"},
	opWrite:       {name: "WRITE", method: "Write", fence: changesByHandle},
	17:            {name: "STATFS", method: "StatFs"},
	opRelease:     {name: "RELEASE", method: "Release"},
	opFsync:       {name: "FSYNC", method: "Fsync"},
	21:            {name: "SETXATTR", method: "SetXAttr", fence: changesByName},
	opGetXAttr:    {name: "GETXATTR", method: "GetXAttr"},
	opListXAttr:   {name: "LISTXATTR", method: "ListXAttr"},
	24:            {name: "REMOVEXATTR", method: "RemoveXAttr", fence: changesByName},
	25:            {name: "FLUSH", method: "Flush"},
	opInit:        {name: "INIT"},
	27:            {name: "OPENDIR", method: "OpenDir"},
	opReadDir:     {name: "READDIR", method: "ReadDir"},
	29:            {name: "RELEASEDIR", method: "ReleaseDir"},
	30:            {name: "FSYNCDIR", method: "FsyncDir"},
	31:            {name: "GETLK", method: "GetLk"},
	32:            {name: "SETLK", method: "SetLk"},
	33:            {name: "SETLKW", method: "SetLkw"},
	34:            {name: "ACCESS", method: "Access"},
	opCreate:      {name: "CREATE", method: "Create", fence: changesByName},
	opInterrupt:   {name: "INTERRUPT"},
	38:            {name: "DESTROY"},
	opIoctl:       {name: "IOCTL", method: "Ioctl", fence: changesByName}, // of chattr(1)
	40:            {name: "POLL"},
	41:            {name: "NOTIFY_REPLY"},
	42:            {name: "BATCH_FORGET", method: "Forget"},
	opFallocate:   {name: "FALLOCATE", method: "Fallocate", fence: changesByHandle},
	opReadDirPlus: {name: "READDIRPLUS", method: "ReadDirPlus"},
	45:            {name: "RENAME2", method: "Rename", fence: changesByName},
	opLseek:       {name: "LSEEK", method: "Lseek"},
	opCopy:        {name: "COPY_FILE_RANGE", method: "CopyFileRange", fence: changesByHandle},
	51:            {name: "TMPFILE", method: "Tmpfile", fence: changesByName},
	52:            {name: "STATX", method: "Statx"},
}
