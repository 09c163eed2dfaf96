package register

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/again"
)

// A directory is one of the storage that is open; its methods are about the
// files in it.
type directory struct {
	*os.File
	storage *storage
}

func (d directory) fd() int { return int(d.Fd()) }

// wrap is [storage.wrap] for what failed with a file.
func (d directory) wrap(what, name string, err error) error {
	return d.storage.wrap(what, d.Name()+"/"+name, err)
}

// openFile opens a file, but no symbolic link; the error is that of the system.
func (d directory) openFile(name string, flags int, mode fs.FileMode) (*os.File, error) {
	return d.storage.openFile(d.fd(), name, flags|unix.O_NOFOLLOW, uint32(mode))
}

// read reads a regular file of at most limit bytes. Anything else there (a
// pipe, a device) is an error, and does not block.
func (d directory) read(name string, limit int64) ([]byte, error) {
	f, err := d.openFile(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, d.wrap("open", name, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %s/%s %w", d.storage.source, d.Name(), name, errNotRegular)
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(f, limit+1))
	}
	if err != nil {
		return nil, d.wrap("read", name, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: %s/%s: %w: over %d bytes", d.storage.source, d.Name(), name, errTooLong, limit)
	}
	return b, nil
}

var (
	errTooLong    = errors.New("file is too long")
	errNotRegular = errors.New("is not a regular file")
)

// names calls f with every name, read to the end.
//
// What the client of the storage has read before is dropped: to an NFS client a
// directory is unchanged as long as its time of change is, and two changes can
// be of one tick of the server's clock.
func (d directory) names(f func(name string)) error {
	_ = unix.Fadvise(d.fd(), 0, 0, unix.FADV_DONTNEED) // which not all know for directories
	for {
		list, err := d.Readdirnames(256)
		for _, name := range list {
			f(name)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return d.storage.wrap("list", d.Name(), err)
		}
	}
}

// stat is the status of a file; the error is that of the system.
func (d directory) stat(name string) (unix.Stat_t, error) { return d.storage.stat(d.File, name) }

// writeTemp makes a new file with all of data on the storage. If it fails
// nothing is left.
func (d directory) writeTemp(name string, data []byte, mode fs.FileMode) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	f, err := d.openFile(name, flags, mode)
	if errors.Is(err, unix.EEXIST) {
		// Ours, of a try that failed: nobody else has this name, and it
		// has never been the source of a link, or it would be in sources.
		d.unlink(name)
		f, err = d.openFile(name, flags, mode)
	}
	if err != nil {
		return d.wrap("create", name, err)
	}
	if err := d.storage.finish(f, data, mode); err != nil {
		d.unlink(name)
		return d.wrap("write", name, err)
	}
	return nil
}

// finish writes all of data to the beginning of f, cuts off what follows, and
// closes it, with all on the storage.
func (s *storage) finish(f *os.File, data []byte, mode fs.FileMode) error {
	err := s.writes.Write(func() error {
		_, err := f.Write(data)
		return err
	})
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
func (d directory) replace(name string, data []byte) error {
	mode, err := d.storage.fileMode()
	if err != nil {
		return err
	}
	temp := d.storage.tempName("")
	if err := d.writeTemp(temp, data, mode); err != nil {
		return err
	}
	if err := again.Call(func() error { return unix.Renameat(d.fd(), temp, d.fd(), name) }); err != nil {
		d.unlink(temp)
		return d.wrap("rename", name, err)
	}
	return nil
}

// link gives a file a second name; the error is that of the system.
func (d directory) link(from, to string) error { return d.storage.link(d.File, from, to) }

// linkNew makes a file of this content unless the name exists, in which case it
// reports false.
func (d directory) linkNew(name string, data []byte, mode fs.FileMode) (bool, error) {
	temp := d.storage.tempName("")
	if err := d.writeTemp(temp, data, mode); err != nil {
		return false, err
	}
	defer d.remove(temp)
	switch err := d.link(temp, name); {
	case err == nil:
		return true, d.syncNames()
	case errors.Is(err, unix.EEXIST):
		return false, nil
	default:
		return false, d.storage.noLink(err)
	}
}

// syncNames makes the names durable where that takes a call of its own.
func (d directory) syncNames() error {
	err := again.Call(func() error { return unix.Fsync(d.fd()) })
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EBADF) {
		return d.storage.wrap("sync", d.Name(), err)
	}
	return nil
}

// remove removes a file; one that is not there is no error.
func (d directory) remove(name string) error {
	err := again.Call(func() error { return unix.Unlinkat(d.fd(), name, 0) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return d.wrap("remove", name, err)
	}
	return nil
}

// unlink removes a file as far as that can be done at once.
func (d directory) unlink(name string) error { return unix.Unlinkat(d.fd(), name, 0) }
