package fusefs

import (
	"net"
	"net/rpc"

	"dmxfs/locks"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// nullLocker grants everything at once.
type nullLocker struct{}

func (nullLocker) Lock(<-chan struct{}, *locks.Request) (locks.Grant, error) {
	return locks.Grant{Tenure: 1}, nil
}
func (nullLocker) Unlock(locks.Key, locks.OwnerID, locks.Range) bool { return false }
func (nullLocker) UnlockOwner(locks.Key, locks.OwnerID)              {}
func (nullLocker) Closing(locks.Key, locks.HandleID)                 {}
func (nullLocker) UnlockHandle(locks.Key, locks.HandleID, string)    {}
func (nullLocker) Wanted(locks.Key) bool                             { return false }
func (nullLocker) Moment() locks.Moment                              { return 1 }
func (nullLocker) Tenure() locks.Tenure                              { return 1 }
func (nullLocker) Admit(<-chan struct{}, locks.Tenure) error         { return nil }
func (nullLocker) Test(<-chan struct{}, *locks.Request) (*locks.Conflict, error) {
	return nil, nil
}

// loopbackControl answers the call by which a test sees that the child serves.
type loopbackControl struct{}

func (loopbackControl) Counts(None, *Counts) error { return nil }

func (loopbackControl) CPU(_ None, us *int64) error {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	*us = (u.Utime.Nano() + u.Stime.Nano()) / 1000
	return err
}

// runLoopback serves go-fuse's own loopback, with the options of its example
// program: to compare with, and as a storage.
func runLoopback(c childConfig, sock net.Conn, fail func(error)) {
	root, err := fs.NewLoopbackRoot(c.Root)
	if err != nil {
		fail(err)
	}
	var disabled uint64
	if !c.Passthrough {
		disabled = fuse.CAP_PASSTHROUGH
	}
	server, err := fs.Mount(c.Mount, root, &fs.Options{
		AttrTimeout: &c.LoopbackTTL, EntryTimeout: &c.LoopbackTTL, NullPermissions: true,
		MountOptions: fuse.MountOptions{
			AllowOther: true, Options: []string{"default_permissions"}, EnableLocks: true,
			DisabledCapabilities: disabled,
			DirectMountStrict:    true, FsName: c.Root, Name: "loopback",
		},
	})
	if err != nil {
		fail(err)
	}
	rs := rpc.NewServer()
	if err := rs.RegisterName("Child", loopbackControl{}); err != nil {
		fail(err)
	}
	rs.ServeConn(sock)
	if err := server.Unmount(); err != nil {
		fail(err)
	}
}
