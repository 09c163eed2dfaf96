package fusefs

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
	// tokenAttr is not on the storage. It is the fencing token, in decimal,
	// of a lock on the file, see tokenOf; there is no such attribute without
	// a lock. It is in no list of attributes, so that nobody copies it.
	tokenAttr = "user.dmxfs.token"
)

// GetXAttr and its siblings go by the name in /proc, since there are no such
// calls for O_PATH descriptors. It leads to a symbolic link itself, too.
func (ac *attrCalls) GetXAttr(cancel <-chan struct{}, in *fuse.InHeader, attr string, dest []byte) (uint32, fuse.Status) {
	n, errno := ac.finder.node(in)
	if !errno.Ok() {
		return 0, errno
	}
	defer ac.tree.unpin(n)
	if attr == tokenAttr {
		return ac.getToken(n, in, dest)
	}
	return ac.readXAttr(in, dest, func(b []byte) (int, error) {
		size, err := unix.Getxattr(fdPath(n.fd), attr, b)
		if err == unix.ENODATA && attr == labelAttr && !labelsCount() {
			err = unix.EOPNOTSUPP
		}
		return size, err
	})
}

// labelAttr is the label of a file for SELinux.
const labelAttr = "security.selinux"

// labelsCount reports whether the kernel goes by labels of SELinux. Where it
// does not, a file without one is told to be on a file system without labels:
// ls(1) asks for that of each file again and again, since the kernel keeps no
// extended attributes of FUSE, but of no more than one file of a file system
// that has none (see the ENOTSUP of getxattr(2)).
var labelsCount = sync.OnceValue(func() bool {
	_, err := os.Stat("/sys/fs/selinux/enforce")
	return err == nil
})

func (ac *attrCalls) ListXAttr(cancel <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	n, errno := ac.finder.node(in)
	if !errno.Ok() {
		return 0, errno
	}
	defer ac.tree.unpin(n)
	if in.Uid == 0 {
		return ac.readXAttr(in, dest, func(b []byte) (int, error) { return unix.Listxattr(fdPath(n.fd), b) })
	}
	return ac.readXAttr(in, dest, func(b []byte) (int, error) {
		all := make([]byte, xattrListMax)
		size, err := unix.Listxattr(fdPath(n.fd), all)
		if err != nil {
			return 0, err
		}
		names := withoutTrusted(all[:size])
		if len(b) > 0 && len(b) < len(names) {
			return len(names), unix.ERANGE
		}
		copy(b, names)
		return len(names), nil
	})
}

// xattrListMax is XATTR_LIST_MAX: no list of names is longer.
const xattrListMax = 1 << 16

// withoutTrusted takes the names out of a list that only root sees, see
// xattr(7), "Trusted extended attributes". The daemon sees them.
func withoutTrusted(list []byte) []byte {
	names := make([]byte, 0, len(list))
	for name := range bytes.SplitAfterSeq(list, []byte{0}) {
		if !bytes.HasPrefix(name, []byte("trusted.")) {
			names = append(names, name...)
		}
	}
	return names
}

// readXAttr makes a call that fills a buffer, or tells the size if it is
// empty. go-fuse wants the size also with ERANGE; a program asks again anyway.
func (ac *attrCalls) readXAttr(in *fuse.InHeader, dest []byte, call func([]byte) (int, error)) (uint32, fuse.Status) {
	size := 0
	err := ac.actor.allowed(in, func() (err error) {
		size, err = call(dest)
		return err
	})
	return uint32(max(size, 0)), status(err)
}

func (ac *attrCalls) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, attr string, data []byte) fuse.Status {
	n, errno := ac.finder.node(&in.InHeader)
	if !errno.Ok() {
		return errno
	}
	defer ac.tree.unpin(n)
	if attr == tokenAttr {
		return fuse.EPERM
	}
	c := &change{in: &in.InHeader, op: "setxattr", files: [2]*node{n}}
	if in.Flags&unix.XATTR_CREATE != 0 {
		c.looksDone = func() bool { return hasXAttr(n, attr, data) }
	}
	err := ac.fence.change(cancel, c, func() error {
		err := ac.actor.allowed(&in.InHeader, func() error { return unix.Setxattr(fdPath(n.fd), attr, data, int(in.Flags)) })
		if err == unix.EEXIST && c.again && hasXAttr(n, attr, data) {
			err = ac.fence.evidence.guess(c)
		}
		if err == nil && in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0 {
			err = ac.actor.dropSetGID(n)
		}
		return err
	})
	if err == nil && c.repeated && in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0 {
		err = ac.actor.dropSetGID(n)
	}
	return status(err)
}

func (ac *attrCalls) RemoveXAttr(cancel <-chan struct{}, in *fuse.InHeader, attr string) fuse.Status {
	n, errno := ac.finder.node(in)
	if !errno.Ok() {
		return errno
	}
	defer ac.tree.unpin(n)
	if attr == tokenAttr {
		return fuse.EPERM
	}
	c := &change{in: in, op: "removexattr", files: [2]*node{n}}
	c.looksDone = func() bool {
		_, err := unix.Getxattr(fdPath(n.fd), attr, nil)
		return err == unix.ENODATA
	}
	return status(ac.fence.alter(cancel, c, func() error {
		err := unix.Removexattr(fdPath(n.fd), attr)
		if err == unix.ENODATA && c.again {
			err = ac.fence.evidence.guess(c)
		}
		return err
	}))
}

func (ac *attrCalls) getToken(n *node, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	token, ok := ac.records.tokenOf(n, ac.procs.find(in.Pid))
	if !ok {
		return 0, fuse.ENODATA
	}
	text := strconv.FormatUint(uint64(token), 10)
	if len(dest) > 0 && len(dest) < len(text) {
		return uint32(len(text)), fuse.ERANGE
	}
	copy(dest, text)
	return uint32(len(text)), fuse.OK
}

// hasACLs reports whether the storage knows POSIX ACLs.
func hasACLs(fd int) bool {
	_, err := unix.Getxattr(fdPath(fd), aclAccess, nil)
	return err == nil || err == unix.ENODATA
}
