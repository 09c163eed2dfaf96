package fusefs

import (
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// dropSetID clears the bits of a file's mode that must not survive a change of
// its content by a program without CAP_FSETID. The daemon has that capability,
// so the storage does not do it. (Capabilities of the file it does remove.)
func (a *actor) dropSetID(in *fuse.InHeader, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if m := a.withoutSetID(in, &st); m != st.Mode {
		return unix.Fchmod(fd, m&07777)
	}
	return nil
}

// dropSetIDOf is the same for a node that is not open.
func (a *actor) dropSetIDOf(in *fuse.InHeader, n *node) error {
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return err
	}
	if m := a.withoutSetID(in, &st); m != st.Mode {
		return unix.Fchmodat(a.fds, itoa(n.fd), m&07777, 0)
	}
	return nil
}

// withoutSetID is the mode of a file after a write. Without permission to
// execute for the group, setgid does not mean execution, and a member of the
// group may leave it.
func (a *actor) withoutSetID(in *fuse.InHeader, st *unix.Stat_t) uint32 {
	mode := st.Mode &^ unix.S_ISUID
	if mode&unix.S_ISGID != 0 && (mode&unix.S_IXGRP != 0 || !a.inGroup(in, st.Gid)) {
		mode &^= unix.S_ISGID
	}
	return mode
}

// inGroup reports whether the program that asks is in a group.
func (a *actor) inGroup(in *fuse.InHeader, gid uint32) bool {
	return in.Gid == gid || slices.Contains(a.groupsOf(in.Pid), int(gid))
}

// dropSetIDFor is dropSetID for requests that do not say whether the program
// has CAP_FSETID: only root is taken to have it.
func (a *actor) dropSetIDFor(in *fuse.InHeader, fd int) error {
	if in.Uid == 0 || !a.self.changes {
		return nil
	}
	return a.dropSetID(in, fd)
}

// dropSetGID clears the setgid bit after the ACL was changed by somebody who
// is not in the group of the file.
func (a *actor) dropSetGID(n *node) error {
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil || st.Mode&unix.S_ISGID == 0 {
		return err
	}
	return unix.Fchmodat(a.fds, itoa(n.fd), st.Mode&07777&^unix.S_ISGID, 0)
}
