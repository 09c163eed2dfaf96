package fusefs

import (
	"crypto/rand"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// A directory that another host has removed is still there for a client that
// keeps names, and nothing makes it forget that but a change of that very name.
// So mkdir(2), where it finds a directory that is not on the server any more,
// makes one of another name and renames it. That would take the place of an
// empty one which was made in this moment, too: it is done under a lock, as is
// every mkdir(2) over such a client.

// lockNew locks the name of a directory that is to be made, where that is
// needed. It waits only for other hosts that are just making it.
func (nc *nameCalls) lockNew(cancel <-chan struct{}, in *fuse.InHeader, name string) (release func(), st fuse.Status) {
	release = func() {}
	if !nc.storage.KeepsNames {
		return release, fuse.OK
	}
	dir, st := nc.finder.node(in)
	if !st.Ok() {
		return release, st
	}
	path := nc.tree.join(dir, name)
	nc.tree.unpin(dir)
	// No file has a name that ends so.
	key := locks.Key{File: "p" + path + "/", Class: locks.Flock}
	id := nc.handleFor(in, key)
	r := locks.Request{
		Key: key, Path: path, Owner: locks.OwnerID(id), Handle: locks.HandleID(id), Mode: locks.Write, Range: locks.Whole,
		Blind: true, Patience: newPatience.Milliseconds(), Program: nc.procs.program(nc.procs.find(in.Pid), in), Waits: nc.onWait(in),
	}
	over, stop := nc.waits.killed(cancel, in.Pid) // mkdir(2) is not interrupted
	defer stop()
	if _, err := nc.lockFor(over, in, &r, true); err != nil {
		return release, lockErrno(err, over)
	}
	return func() { nc.locker.UnlockHandle(key, locks.HandleID(id), "the directory is made") }, fuse.OK
}

// newPatience is more than the loss of a host that is making a directory takes.
const newPatience = 30 * time.Second

// makeDir is mkdirat(2), by whoever has called lockNew.
func (nc *nameCalls) makeDir(dir *node, name string, mode uint32) error {
	err := unix.Mkdirat(dir.fd, name, mode)
	if err != unix.EEXIST || !nc.storage.KeepsNames {
		return err
	}
	fd, e := unix.Openat(dir.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if e != nil {
		return err
	}
	defer closeFD(fd)
	if !hasGone(fd) {
		return err
	}
	temp := ".dmxfs-" + rand.Text()
	if err := unix.Mkdirat(dir.fd, temp, mode); err != nil {
		return err
	}
	if err = unix.Renameat(dir.fd, temp, dir.fd, name); err != nil {
		_ = unix.Unlinkat(dir.fd, temp, unix.AT_REMOVEDIR)
		return unix.EEXIST // by a program that does not go by dmxfs
	}
	return nil
}
