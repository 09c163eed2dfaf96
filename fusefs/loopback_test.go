package fusefs

import (
	"context"
	"net"
	"net/rpc"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// nullLocker grants everything at once.
type nullLocker struct{}

func (nullLocker) Lock(<-chan struct{}, *locks.Request) (locks.Grant, error) {
	return locks.Grant{Tenure: 1}, nil
}
func (nullLocker) LockNow(*locks.Request) (locks.Grant, bool) {
	return locks.Grant{Tenure: 1}, true
}
func (nullLocker) Unlock(locks.Key, locks.OwnerID, locks.Range) bool { return false }
func (nullLocker) UnlockOwner(locks.Key, locks.OwnerID)              {}
func (nullLocker) Closing(locks.Key, locks.HandleID)                 {}
func (nullLocker) UnlockHandle(locks.Key, locks.HandleID, string)    {}
func (nullLocker) Wanted(locks.Key) locks.Mode                       { return 0 }
func (nullLocker) Share(locks.Key, locks.HandleID, string) bool      { return false }
func (nullLocker) Moment() locks.Moment                              { return 1 }
func (nullLocker) Tenure() locks.Tenure                              { return 1 }
func (nullLocker) Admit(<-chan struct{}, locks.Tenure) error         { return nil }
func (nullLocker) Test(<-chan struct{}, *locks.Request) (*locks.Conflict, error) {
	return nil, nil
}

// loopbackControl is what a test asks the child to do.
type loopbackControl struct{ held *heldAttr }

func (loopbackControl) Counts(None, *Counts) error { return nil }

func (loopbackControl) CPU(_ None, us *int64) error {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	*us = (u.Utime.Nano() + u.Stime.Nano()) / 1000
	return err
}

// heldAttr holds back answers to GETATTR, as a machine does that is busy.
type heldAttr struct {
	mu     sync.Mutex
	most   int // how many more it holds
	answer []chan struct{}
	behind bool // see FallBehind
}

// FallBehind has files be empty, as GETATTR says, until they are written out.
func (c loopbackControl) FallBehind(None, *None) error {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	c.held.behind = true
	return nil
}

// HoldAttr has the next n answers held back, with what is true when they are
// asked for.
func (c loopbackControl) HoldAttr(n int, _ *None) error {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	c.held.most, c.held.answer = n, nil
	return nil
}

// Held is how many are held back, or were.
func (c loopbackControl) Held(_ None, n *int) error {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	*n = len(c.held.answer)
	return nil
}

// Answer lets one go.
func (c loopbackControl) Answer(i int, _ *None) error {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	close(c.held.answer[i])
	return nil
}

func (x *heldAttr) hold() {
	x.mu.Lock()
	if x.most == 0 {
		x.mu.Unlock()
		return
	}
	x.most--
	c := make(chan struct{})
	x.answer = append(x.answer, c)
	x.mu.Unlock()
	<-c
}

// heldNode is a file or directory of a loopback that holds answers back.
type heldNode struct {
	*fs.LoopbackNode
	held    *heldAttr
	seconds bool // times are in whole seconds
}

func (n *heldNode) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &heldNode{child.(*fs.LoopbackNode), n.held, n.seconds}
}

// times has a file system have the times that it can.
func (n *heldNode) times(a *fuse.Attr) {
	if n.seconds {
		a.Atimensec, a.Mtimensec, a.Ctimensec = 0, 0, 0
	}
}

func (n *heldNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	child, errno := n.LoopbackNode.Lookup(ctx, name, out)
	n.times(&out.Attr)
	return child, errno
}

func (n *heldNode) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	errno := n.LoopbackNode.Setattr(ctx, h, in, out)
	n.times(&out.Attr)
	return errno
}

func (n *heldNode) Getattr(ctx context.Context, h fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	errno := n.LoopbackNode.Getattr(ctx, h, out)
	n.times(&out.Attr)
	n.held.mu.Lock()
	if n.held.behind && out.Mode&unix.S_IFMT == unix.S_IFREG {
		out.Size = 0
	}
	n.held.mu.Unlock()
	n.held.hold()
	return errno
}

func (n *heldNode) Fsync(ctx context.Context, h fs.FileHandle, flags uint32) syscall.Errno {
	n.held.mu.Lock()
	n.held.behind = false
	n.held.mu.Unlock()
	return h.(fs.FileFsyncer).Fsync(ctx, flags)
}

func (n *heldNode) Statx(context.Context, fs.FileHandle, uint32, uint32, *fuse.StatxOut) syscall.Errno {
	return unix.ENOSYS // the kernel asks by GETATTR then
}

// runLoopback serves go-fuse's own loopback, with the options of its example
// program: to compare with, and as a storage.
func runLoopback(c childConfig, sock net.Conn, fail func(error)) {
	var held heldAttr
	root, err := fs.NewLoopbackRoot(c.Root)
	if err != nil {
		fail(err)
	}
	if c.HoldAttr || c.Seconds {
		root = &heldNode{root.(*fs.LoopbackNode), &held, c.Seconds}
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
	if err := rs.RegisterName("Child", loopbackControl{&held}); err != nil {
		fail(err)
	}
	rs.ServeConn(sock)
	// Who was killed, over this as its storage, may still be about to close its descriptors.
	end, again := time.NewTimer(20*time.Second), time.NewTicker(time.Millisecond)
	defer end.Stop()
	defer again.Stop()
	for err := server.Unmount(); err != nil; err = server.Unmount() {
		select {
		case <-again.C:
		case <-end.C:
			fail(err)
		}
	}
}
