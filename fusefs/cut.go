package fusefs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// A connection to the kernel lives for as long as there is a mount of it, and
// other mount namespaces can have copies of ours: a service of systemd's with
// PrivateTmp=, a container, unshare(1). Nothing in our namespace takes those
// away. So when the mount was to end and the connection goes on, it is cut, and
// the copies fail, as after umount -f.

// copiesTime is how long the kernel has to end a connection after the last
// mount that is known of was taken away. It does so before umount(2) returns,
// unless somebody else has taken it away, in this moment.
const copiesTime = 500 * time.Millisecond

// ended returns when the connection has ended, or d has passed, and reports
// which.
func (c *conn) ended(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.dead:
		return true
	case <-t.C:
		return !c.connected()
	}
}

// connected asks the kernel whether there is still a mount.
func (c *conn) connected() (yes bool) {
	if e := c.file.raw.Control(func(fd uintptr) { yes = isConnected(int(fd)) }); e != nil {
		return false // it is closed
	}
	return yes
}

// isConnected reports whether there is still a mount of a connection, dev.
func isConnected(dev int) bool {
	p := []unix.PollFd{{Fd: int32(dev), Events: unix.POLLOUT}}
	_ = retryEINTR(func() error { _, err := unix.Poll(p, 0); return err })
	return p[0].Revents&unix.POLLERR == 0
}

// cut ends the connection, whoever has mounts of it. number is its number in
// the file system fusectl.
func (c *conn) cut(number string) error {
	if !c.connected() {
		return nil
	}
	f, err := openAbort(number)
	if err != nil {
		return fmt.Errorf("cut the connection %s to the kernel: %w", number, err)
	}
	defer f.Close()
	// The number belongs to this connection for as long as that lives, and what
	// was opened stays with it: if it lives now, the file was not another's.
	if !c.connected() {
		return nil
	}
	if _, err := f.WriteString("1"); err != nil {
		return fmt.Errorf("cut the connection %s to the kernel: %w", number, err)
	}
	return nil
}

// openAbort opens the file that ends a connection when it is written to. Where
// fusectl is not mounted, as in many containers, root can have it all the same.
func openAbort(number string) (*os.File, error) {
	f, err := os.OpenFile("/sys/fs/fuse/connections/"+number+"/abort", os.O_WRONLY, 0)
	if err == nil || unix.Geteuid() != 0 {
		return f, err
	}
	ctl, err2 := mountFusectl()
	if err2 != nil {
		return nil, errors.Join(err, err2)
	}
	defer unix.Close(ctl)
	name := number + "/abort"
	fd, err := unix.Openat(ctl, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "fusectl/" + name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// mountFusectl mounts fusectl where nobody sees it, and returns its root.
func mountFusectl() (int, error) {
	fs, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err == nil {
		defer unix.Close(fs)
		err = unix.FsconfigCreate(fs)
	}
	if err != nil {
		return -1, fmt.Errorf("fusectl: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("mount fusectl: %w", err)
	}
	return fd, nil
}

// connectionNumber is what fusectl calls the connection of a mount: the minor
// number of its device.
func connectionNumber(id int) (string, error) {
	mounts, err := mountinfo.Read()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.ID == id {
			return strconv.FormatUint(uint64(unix.Minor(m.Dev)), 10), nil
		}
	}
	return "", fmt.Errorf("mount %d is not in /proc/self/mountinfo", id)
}
