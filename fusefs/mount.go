package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountpoint is a mount that this process has made.
//
// go-fuse could make it, too. But then it would not give away the descriptor
// of /dev/fuse, which expireEntry needs, and it hides what fusermount3 says.
type mountpoint struct {
	path   string // absolute
	id     int    // of the mount, as in /proc/self/mountinfo
	number string // of the connection, as in fusectl
	helper bool   // made by fusermount3
}

const (
	defaultSubtype = "dmxfs"
	helperName     = "fusermount3"
)

// MountType is the type of our mounts in the kernel's list of them.
const MountType = "fuse." + defaultSubtype

// newMount mounts, and returns the descriptor of the connection to the kernel.
func newMount(o *Options) (m mountpoint, dev int, err error) {
	path, err := filepath.Abs(o.MountPoint)
	if err != nil {
		return m, -1, err
	}
	m = mountpoint{path: path}
	err = unix.EPERM
	switch {
	case unix.Geteuid() != 0 && o.Replace:
		// The helper can't mount over a dead mount, nor beneath it.
		if err := (mountpoint{path: path}).detachByHelper(true); err != nil {
			return m, -1, err
		}
	case unix.Geteuid() != 0:
	case o.Replace:
		dev, err = mountInPlaceOf(path, o)
	default:
		dev, err = mountDirectly(path, o)
	}
	if err == unix.EPERM { // not root, or root of a container that has only the helper
		m.helper = true
		dev, err = mountByHelper(path, o)
	} else {
		err = mountError(path, err)
	}
	if err != nil {
		return m, -1, err
	}
	if m.id, err = mountID(path); err == nil {
		m.number, err = connectionNumber(m.id)
	}
	if err != nil {
		unix.Close(dev)
		return m, -1, mountError(path, err)
	}
	return m, dev, nil
}

// mountID tells which mount is at a path, without asking the file system.
func mountID(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return mountOf(fd)
}

// open opens the root of the mount, without asking the file system. The mount
// cannot be unmounted meanwhile.
func (m mountpoint) open() (fd int, err error) {
	if fd, err = unix.Open(m.path, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return -1, err
	}
	if id, err := mountOf(fd); err != nil || id != m.id {
		unix.Close(fd)
		return -1, fmt.Errorf("the mount is not at %s any more", m.path)
	}
	return fd, nil
}

// mountOf tells which mount a descriptor is of.
func mountOf(fd int) (int, error) {
	info, err := os.ReadFile("/proc/self/fdinfo/" + itoa(fd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(info)) {
		if v, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(v))
		}
	}
	return 0, errors.New("/proc/self/fdinfo does not tell the mount")
}

func mountError(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("mount at %s: the kernel has no FUSE (modprobe fuse)", path)
	case errors.Is(err, errNoDevice):
		return fmt.Errorf("mount at %s: %w: there is no FUSE here; load it (modprobe fuse), or give this container the device (--device /dev/fuse)", path, err)
	case errors.Is(err, unix.ENOTCONN):
		return fmt.Errorf("mount at %s: a dead FUSE mount is there; remove it with: umount -l %s", path, path)
	}
	return fmt.Errorf("mount at %s: %w", path, err)
}

// errNoDevice: /dev/fuse is not there, or has no driver.
var errNoDevice = errors.New("no device")

// helperHint is what to do about what the helper says; empty if it says all.
func helperHint(says string) string {
	switch {
	case strings.Contains(says, "user_allow_other"):
		return "; write the line user_allow_other there, as root, or mount without allow_other"
	case strings.Contains(says, "executable file not found"):
		return "; users other than root mount with it: install the package fuse3"
	case strings.Contains(says, "open /dev/fuse: Permission denied"):
		return "; all users must be able to read and write that device (chmod 666 /dev/fuse), as udev makes it"
	case strings.Contains(says, "/dev/fuse"), strings.Contains(says, "modprobe"):
		return "; there is no FUSE here: load it (modprobe fuse), or give this container the device (--device /dev/fuse)"
	case strings.Contains(says, "no write access to mountpoint"):
		return "; mount at a directory that belongs to this user"
	}
	return ""
}

func sourceAndType(o *Options) (source, subtype string) {
	source, subtype = o.Source, defaultSubtype
	if o.Mount.Source != "" {
		source = o.Mount.Source
	}
	if o.Mount.Subtype != "" {
		subtype = o.Mount.Subtype
	}
	return source, subtype
}

// mountDirectly uses mount(2). The error is the system call's.
func mountDirectly(path string, o *Options) (dev int, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, unix.ENOTDIR
	}
	dev, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		if err == unix.ENOENT || err == unix.ENXIO {
			err = fmt.Errorf("%w: %w", errNoDevice, err)
		}
		return -1, fmt.Errorf("open /dev/fuse: %w", err)
	}
	data := append([]string{
		fmt.Sprintf("fd=%d", dev),
		fmt.Sprintf("rootmode=%o", st.Mode&unix.S_IFMT),
		fmt.Sprintf("user_id=%d", unix.Geteuid()),
		fmt.Sprintf("group_id=%d", unix.Getegid()),
		"default_permissions", "allow_other",
	}, o.Mount.data...)
	source, subtype := sourceAndType(o)
	if err := unix.Mount(source, path, "fuse."+subtype, o.Mount.flags(), strings.Join(data, ",")); err != nil {
		unix.Close(dev)
		return -1, err
	}
	return dev, nil
}

// mountByHelper lets fusermount3 mount, which may do it for any user. It sends
// the descriptor back over a socket.
func mountByHelper(path string, o *Options) (dev int, err error) {
	fail := func(err error) (int, error) {
		return -1, fmt.Errorf("mount at %s with %s: %w%s", path, helperName, err, helperHint(err.Error()))
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
	defer ours.Close()
	defer theirs.Close()

	source, subtype := sourceAndType(o)
	words := append([]string{
		"fsname=" + escapeOption(source), "subtype=" + escapeOption(subtype), "default_permissions",
	}, o.Mount.words()...)
	if o.Mount.AllowOther {
		words = append(words, "allow_other")
	}
	cmd := exec.Command(helperName, "-o", strings.Join(words, ","), "--", path)
	cmd.Env = append(os.Environ(), "_FUSE_COMMFD=3")
	cmd.ExtraFiles = []*os.File{theirs}
	var says bytes.Buffer
	cmd.Stderr = &says
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(says.String()); text != "" {
			err = errors.New(text)
		}
		return fail(err)
	}
	theirs.Close()
	dev, err = receiveFD(ours)
	if err != nil {
		return fail(err)
	}
	return dev, nil
}

func escapeOption(s string) string {
	return strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(s)
}

// receiveFD takes one descriptor from a socket.
func receiveFD(sock *os.File) (int, error) {
	c, err := net.FileConn(sock)
	if err != nil {
		return -1, err
	}
	defer c.Close()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		return -1, errors.New("it sent no descriptor")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.New("it sent no descriptor")
	}
	unix.CloseOnExec(fds[0])
	return fds[0], nil
}

var (
	// ErrBusy is the error of an unmount while programs use the mount.
	ErrBusy = errors.New("programs use the mount")
	// ErrCopies is that of an unmount after which copies of the mount are left,
	// which only the end of the process ends.
	ErrCopies = errors.New("other mount namespaces have copies of the mount")
)

// gone reports whether something else is at the path now: the mount was taken
// away already. What was there before must not be unmounted in its place: it
// may be the shared directory.
func (m mountpoint) gone() bool {
	id, err := mountID(m.path)
	return err != nil && !errors.Is(err, unix.ENOTCONN) || err == nil && id != m.id
}

// detach unmounts. With lazy the mount disappears at once, and ends when the
// last program has closed its last file.
func (m mountpoint) detach(lazy bool) error {
	if m.gone() {
		return nil
	}
	if m.helper {
		return m.detachByHelper(lazy)
	}
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	switch err := unix.Unmount(m.path, flags); err {
	case nil:
		return nil
	case unix.EBUSY:
		return m.busy()
	default:
		return fmt.Errorf("unmount %s: %w", m.path, err)
	}
}

func (m mountpoint) detachByHelper(lazy bool) error {
	args := []string{"-u", "--", m.path}
	if lazy {
		args = []string{"-u", "-z", "--", m.path}
	}
	out, err := exec.Command(helperName, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(string(out))
	if strings.Contains(text, "busy") {
		return m.busy()
	}
	return fmt.Errorf("unmount %s: %w: %s", m.path, err, text)
}

func (m mountpoint) busy() error {
	return fmt.Errorf("unmount %s: %w (fuser -m %s tells which)", m.path, ErrBusy, m.path)
}

// abort takes the mount away, also if it is in use.
func (m mountpoint) abort() error {
	if m.gone() {
		return nil
	}
	if !m.helper && unix.Unmount(m.path, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW) == nil {
		return nil
	}
	return m.detach(true)
}
