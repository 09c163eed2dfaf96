package fusefs

import (
	"runtime"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// credentials are those of the daemon.
type credentials struct {
	uid, gid uint32
	groups   []int
	// changes: the daemon may act as others.
	changes bool
	// caps are its capabilities, all that are permitted effective; nil if they
	// are not known.
	caps *[2]unix.CapUserData
}

func ownCredentials() credentials {
	c := credentials{uid: uint32(unix.Geteuid()), gid: uint32(unix.Getegid())}
	c.groups, _ = unix.Getgroups()
	var caps [2]unix.CapUserData
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if unix.Capget(&hdr, &caps[0]) == nil {
		const need = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
		c.changes = caps[0].Effective&need == need
		for i := range caps {
			caps[i].Effective = caps[i].Permitted
		}
		c.caps = &caps
	}
	return c
}

// raise makes all permitted capabilities of this thread effective.
func (c *credentials) raise() {
	if c.caps != nil {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		unix.Capset(&hdr, &c.caps[0])
	}
}

// returns makes this thread the daemon's own again, by call, after it has acted as
// uid. A daemon that is another user than root, and has capabilities, loses those
// for files with its return from root.
func (c *credentials) returns(uid uint32, call func()) {
	call()
	if uid == 0 && c.uid != 0 {
		c.raise()
	}
}

// actor acts as the program that asks, as far as that is needed.
type actor struct {
	*base
	self credentials
}

func (a *actor) createOnce(in *fuse.InHeader, call func() error) error {
	if !a.differs(in) {
		return retryEINTR(call)
	}
	err := a.as(in, idsOnly, call)
	if err == unix.EACCES || err == unix.EPERM {
		err = a.as(in, capable, call)
	}
	return err
}

// allowed runs a call on an existing file as the daemon, and if a remote
// storage refuses that, as the program that asks: an NFS server takes the root
// of its clients for nobody, but it believes them about everybody else.
func (a *actor) allowed(in *fuse.InHeader, call func() error) error {
	err := retryEINTR(call)
	if err != unix.EACCES && err != unix.EPERM || !a.storage.Remote || !a.differs(in) {
		return err
	}
	return a.as(in, capable, call)
}

// differs reports whether the daemon can act as the program that asks, and is
// not the same user already.
func (a *actor) differs(in *fuse.InHeader) bool {
	return a.self.changes && (in.Uid != a.self.uid || in.Gid != a.self.gid)
}

// charged runs a call that takes space of the storage as the user of the program
// that asks: what a file system keeps back for root is not for everybody who
// uses a daemon that is root's. All else stays as it is: who may write was
// decided at the open, and what becomes of the mode by dropSetID, for which the
// capabilities have to stay. It costs three system calls.
func (a *actor) charged(in *fuse.InHeader, call func() error) error {
	if !a.self.changes || in.Uid == a.self.uid {
		return retryEINTR(call)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(in.Uid), 0, 0)
	defer a.self.returns(in.Uid, func() { syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(a.self.uid), 0, 0) })
	a.self.raise()
	return retryEINTR(call)
}

// chargedUnless is charged, but for pages that the kernel writes back: those
// come from no program, and are written as the daemon.
func (a *actor) chargedUnless(back bool, in *fuse.InHeader, call func() error) error {
	if back {
		return retryEINTR(call)
	}
	return a.charged(in, call)
}

// identity is how much of a program's identity a call is made with.
type identity int

const (
	idsOnly    identity = iota // its user and group
	withGroups                 // and its supplementary groups: no more and no less than it may do
	capable                    // the same with the capabilities of the daemon
)

// as runs call as the program that asks. Linux keeps all of this per thread.
func (a *actor) as(in *fuse.InHeader, who identity, call func() error) error {
	var groups []int
	if who >= withGroups {
		groups = a.groupsOf(in.Pid)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if who >= withGroups {
		if err := setGroups(groups); err != nil {
			return err
		}
		defer setGroups(a.self.groups)
	}
	defer a.self.returns(in.Uid, func() { setFSIDs(a.self.uid, a.self.gid) })
	if !setFSIDs(in.Uid, in.Gid) {
		return unix.EOVERFLOW // an ID that does not exist for the daemon
	}
	if who == capable {
		a.self.raise()
	}
	return retryEINTR(call)
}

// setFSIDs sets the file system IDs of this thread; see setfsuid(2). Leaving
// root drops the capabilities for files, returning to root restores them.
func setFSIDs(uid, gid uint32) bool {
	const ask = ^uintptr(0) // no such ID: changes nothing and tells the present one
	syscall.RawSyscall(syscall.SYS_SETFSGID, uintptr(gid), 0, 0)
	syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(uid), 0, 0)
	g, _, _ := syscall.RawSyscall(syscall.SYS_SETFSGID, ask, 0, 0)
	u, _, _ := syscall.RawSyscall(syscall.SYS_SETFSUID, ask, 0, 0)
	return uint32(g) == gid && uint32(u) == uid
}

// setGroups sets the supplementary groups of this thread only, unlike
// syscall.Setgroups.
func setGroups(groups []int) error {
	gids := make([]uint32, len(groups)+1)
	for i, g := range groups {
		gids[i] = uint32(g)
	}
	return rawSetgroups(gids[:len(groups)], &gids[0])
}

// groupsOf are the supplementary groups of the thread that makes a request.
func (a *actor) groupsOf(tid uint32) []int {
	status, err := a.procs.status(tid)
	if err != nil {
		return nil
	}
	return groupsIn(status)
}

// groupsIn are the groups that /proc/TID/status tells.
func groupsIn(status []byte) (groups []int) {
	for _, w := range statusWords(status, "Groups:") {
		if g, err := strconv.ParseUint(string(w), 10, 32); err == nil {
			groups = append(groups, int(g))
		}
	}
	return groups
}
