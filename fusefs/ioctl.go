package fusefs

import (
	"syscall"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/fs.h, in the encoding of most architectures.
const (
	fsIocGetVersion  = 0x80087601
	fsIocFSGetXattr  = 0x801c581f
	fsIocFSSetXattr  = 0x401c5820
	maxPassedIoctlIO = 32
)

// Ioctl passes what chattr(1), lsattr(1) and project quotas use. These the
// kernel itself sends, after it has checked who may set what. Any other
// request could mean anything to the storage, and is no typewriter's.
func (fc *fileCalls) Ioctl(cancel <-chan struct{}, in *fuse.IoctlIn, inbuf []byte, out *fuse.IoctlOut, outbuf []byte) fuse.Status {
	switch in.Cmd {
	case unix.FS_IOC_GETFLAGS, unix.FS_IOC_SETFLAGS, fsIocFSGetXattr, fsIocFSSetXattr, fsIocGetVersion:
	default:
		return fuse.Status(unix.ENOTTY)
	}
	var arg [maxPassedIoctlIO]byte
	if len(inbuf) > len(arg) || len(outbuf) > len(arg) {
		return fuse.EINVAL
	}
	copy(arg[:], inbuf)
	call := func(fd int) error {
		return fc.actor.allowed(&in.InHeader, func() error {
			_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), uintptr(in.Cmd), uintptr(unsafe.Pointer(&arg)))
			if errno != 0 {
				return errno
			}
			return nil
		})
	}
	h, d := fc.handles.get(in.Fh), fc.dirs.get(in.Fh)
	c := &change{in: &in.InHeader, op: "ioctl", through: h}
	var do func() error
	switch {
	case in.Flags&fuse.IOCTL_DIR != 0 && d != nil:
		do = func() (err error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			fd := d.fd
			if fd < 0 {
				if fd, err = unix.Openat(d.n.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
					return err
				}
				defer unix.Close(fd)
			}
			return call(fd)
		}
		c.files[0] = d.n
	case in.Flags&fuse.IOCTL_DIR == 0 && h != nil:
		do = func() error {
			h.mu.RLock()
			defer h.mu.RUnlock()
			return call(h.fd)
		}
		c.files[0] = h.n
	default:
		return fuse.EBADF
	}
	var err error
	if in.Cmd == unix.FS_IOC_SETFLAGS || in.Cmd == fsIocFSSetXattr {
		err = fc.fence.change(cancel, c, do)
		// The kernel does not know that it has changed anything; see also mayKeepNames.
		if n := c.files[0]; fc.opts.CacheTime > fc.opts.TTL {
			n.exact.Store(0)
			n.notified.Add(1)
			fc.dev.forgetAttr(n.id)
		}
	} else {
		err = do()
	}
	if err != nil {
		if err == unix.ENOSYS {
			err = unix.ENOTTY
		}
		return status(err)
	}
	copy(outbuf, arg[:])
	return fuse.OK
}
