package register

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/again"
	"github.com/dmxfs/dmxfs/internal/writegate"
)

// Names below the shared directory.
const (
	Name     = ".dmxfs" // hidden from the mount
	viewsDir = Name + "/views"
	peersDir = Name + "/peers"

	// ClusterFile is in the directory Name of each cluster.
	ClusterFile = "cluster"
	secretFile  = "secret"

	newPrefix = "new-" // of temporary files
)

// storage is the shared directory: it opens and makes directories there, and
// says what they and their files are called and may be.
type storage struct {
	root   int    // descriptor of the shared directory
	source string // what to call it in errors
	peer   string

	session string        // random: names of temporary files are of one process
	last    atomic.Uint64 // numbers them

	writes *writegate.Gate // what is written passes it; nil: nothing else does

	// linkIn, statIn and openAt; tests put storage that fails in their place.
	link     func(dir *os.File, from, to string) error
	stat     func(dir *os.File, name string) (unix.Stat_t, error)
	openFile func(dir int, name string, flags int, mode uint32) (*os.File, error)
}

// open opens a directory below the shared one by its path, never by a
// descriptor that was kept: that would show what a cache holds.
func (s *storage) open(path string) (directory, error) {
	f, err := openAt(s.root, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return directory{}, s.wrap("open", path, err)
	}
	return directory{f, s}, nil
}

// makeDir makes a directory, unless it is there, in which case it reports false.
func (s *storage) makeDir(path string) (bool, error) {
	mode, err := s.dirMode()
	if err != nil {
		return false, err
	}
	err = again.Call(func() error { return unix.Mkdirat(s.root, path, mode&0o777) })
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	if err != nil {
		return false, s.wrap("make", path, err)
	}
	// The umask took bits away, and mkdir does not set all.
	err = again.Call(func() error { return unix.Fchmodat(s.root, path, mode, 0) })
	if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ENOTSUP) {
		return true, s.wrap("chmod", path, err)
	}
	return true, nil
}

// dirMode is the mode of the directories, fileMode that of the files; see
// package comment.
func (s *storage) dirMode() (uint32, error) {
	var st unix.Stat_t
	if err := again.Call(func() error { return unix.Fstat(s.root, &st) }); err != nil {
		return 0, s.wrap("stat", ".", err)
	}
	mode := uint32(0o700)
	if st.Mode&0o020 != 0 {
		mode |= 0o070
	}
	if st.Mode&0o002 != 0 {
		mode |= 0o007
	}
	return mode | st.Mode&(unix.S_ISGID|unix.S_ISVTX), nil
}

func (s *storage) fileMode() (fs.FileMode, error) {
	mode, err := s.dirMode()
	return fs.FileMode(0o600 | mode&0o044), err
}

// tempName is a name that no other file has, of any process.
func (s *storage) tempName(what string) string {
	return fmt.Sprintf("%s%s-%s%s-%d", newPrefix, s.peer, what, s.session, s.last.Add(1))
}

// statCluster is nil if the file of the cluster is there, and else tells why it
// cannot be seen.
func (s *storage) statCluster() error {
	var st unix.Stat_t
	return again.Call(func() error {
		return unix.Fstatat(s.root, Name+"/"+ClusterFile, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// replaceIn gives the file name in a directory new content, all at once.
func (s *storage) replaceIn(path, name string, b []byte) error {
	dir, err := s.open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.replace(name, b)
}

func openAt(dir int, name string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

func statIn(dir *os.File, name string) (st unix.Stat_t, err error) {
	fd := int(dir.Fd())
	err = again.Call(func() error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

func linkIn(dir *os.File, from, to string) error {
	fd := int(dir.Fd())
	return again.Call(func() error { return unix.Linkat(fd, from, fd, to, 0) })
}
