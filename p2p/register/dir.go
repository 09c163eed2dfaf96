package register

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"dmxfs/locks"
)

// Names below the shared directory.
const (
	Name     = ".dmxfs" // hidden from the mount
	viewsDir = Name + "/views"
	peersDir = Name + "/peers"

	// ClusterFile is in the directory Name of each cluster.
	ClusterFile = "cluster"
	secretFile  = "secret"
)

// Dir is a [Register] in a directory, and what else a node keeps there. Init
// comes first. The methods of Register are for one goroutine; those for peer
// records may be called by any.
type Dir struct {
	root   int    // descriptor of the shared directory
	source string // what to call it in errors
	peer   string

	session string // random: names of temporary files are of one process

	link func(dir *os.File, from, to string) error // linkIn; tests put storage that fails in its place

	mu      sync.Mutex
	cluster string                 // its ID, once it is known
	temps   map[string]locks.Epoch // sources of links: written in full, by their names
	last    uint64                 // numbers temporary names
	largest int                    // bytes of the largest view that was seen
}

// NewDir is the register below root, which stays the caller's, and must stay
// open. Source is the name of root for people; peer is this node's.
func NewDir(root *os.File, source, peer string) *Dir {
	session := make([]byte, 6)
	rand.Read(session)
	return &Dir{root: int(root.Fd()), source: source, peer: peer,
		session: hex.EncodeToString(session), link: linkIn, temps: map[string]locks.Epoch{}}
}

var _ Register = (*Dir)(nil)

// open opens a directory below the shared one by its path, never by a
// descriptor that was kept: that would show what a cache holds.
func (d *Dir) open(path string) (*os.File, error) {
	for {
		fd, err := unix.Openat(d.root, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, d.wrap("open", path, err)
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// read reads a regular file of at most limit bytes in dir. Anything else there
// (a pipe, a device) is an error, and does not block.
func (d *Dir) read(dir *os.File, name string, limit int64) ([]byte, error) {
	f, err := openIn(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, d.wrap("open", dir.Name()+"/"+name, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %s/%s %w", d.source, dir.Name(), name, errNotRegular)
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(f, limit+1))
	}
	if err != nil {
		return nil, d.wrap("read", dir.Name()+"/"+name, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: %s/%s: %w: over %d bytes", d.source, dir.Name(), name, errTooLong, limit)
	}
	return b, nil
}

var (
	errTooLong    = errors.New("file is too long")
	errNotRegular = errors.New("is not a regular file")
)

func openIn(dir *os.File, name string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_CLOEXEC, mode)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// writeTemp makes a new file in dir with all of data on the storage. If it
// fails nothing is left.
func (d *Dir) writeTemp(dir *os.File, name string, data []byte, mode fs.FileMode) error {
	path := dir.Name() + "/" + name
	f, err := openIn(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, uint32(mode))
	if errors.Is(err, unix.EEXIST) {
		// Ours, of a try that failed: nobody else has this name, and it
		// has never been the source of a link, or it would be in temps.
		unix.Unlinkat(int(dir.Fd()), name, 0)
		f, err = openIn(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, uint32(mode))
	}
	if err != nil {
		return d.wrap("create", path, err)
	}
	if err := finish(f, data, mode); err != nil {
		unix.Unlinkat(int(dir.Fd()), name, 0)
		return d.wrap("write", path, err)
	}
	return nil
}

// finish writes all of data to the beginning of f, cuts off what follows, and
// closes it, with all on the storage.
func finish(f *os.File, data []byte, mode fs.FileMode) error {
	_, err := f.Write(data)
	if err == nil {
		err = cut(f, int64(len(data)))
	}
	if err == nil {
		err = f.Chmod(mode) // the umask is not ours to decide by
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
			err = nil // storage without modes
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr // NFS reports here what it could not write
	}
	return err
}

// cut makes a file end after size bytes if it is longer. In a new one there is
// nothing to cut off, and some storage would make a fuss of it.
func cut(f *os.File, size int64) error {
	st, err := f.Stat()
	if err != nil || st.Size() <= size {
		return err
	}
	return f.Truncate(size)
}

// replace gives name new content, all at once.
func (d *Dir) replace(dir *os.File, name string, data []byte) error {
	mode, err := d.fileMode()
	if err != nil {
		return err
	}
	temp := d.tempName("")
	if err := d.writeTemp(dir, temp, data, mode); err != nil {
		return err
	}
	fd := int(dir.Fd())
	if err := ignoringEINTR(func() error { return unix.Renameat(fd, temp, fd, name) }); err != nil {
		unix.Unlinkat(fd, temp, 0)
		return d.wrap("rename", dir.Name()+"/"+name, err)
	}
	return nil
}

// tempName is a name that no other file has, of any process.
func (d *Dir) tempName(what string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return fmt.Sprintf("%s%s-%s%s-%d", newPrefix, d.peer, what, d.session, d.last)
}

func (d *Dir) clusterID() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cluster
}

// remove removes a file in dir; one that is not there is no error.
func (d *Dir) remove(dir *os.File, name string) error {
	err := ignoringEINTR(func() error { return unix.Unlinkat(int(dir.Fd()), name, 0) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return d.wrap("remove", dir.Name()+"/"+name, err)
	}
	return nil
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// names calls f with every name in dir, read to its end.
//
// What the client of the storage has read before is dropped: to an NFS client a
// directory is unchanged as long as its time of change is, and two changes can
// be of one tick of the server's clock.
func (d *Dir) names(dir *os.File, f func(name string)) error {
	_ = unix.Fadvise(int(dir.Fd()), 0, 0, unix.FADV_DONTNEED) // which not all know for directories
	for {
		list, err := dir.Readdirnames(256)
		for _, name := range list {
			f(name)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return d.wrap("list", dir.Name(), err)
		}
	}
}

// dirMode is the mode of the directories, fileMode that of the files; see
// package comment.
func (d *Dir) dirMode() (uint32, error) {
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Fstat(d.root, &st) }); err != nil {
		return 0, d.wrap("stat", ".", err)
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

func (d *Dir) fileMode() (fs.FileMode, error) {
	mode, err := d.dirMode()
	return fs.FileMode(0o600 | mode&0o044), err
}
