package doctor

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// workDir is the directory in which the doctor works, as one of the two
// sides has it: .dmxfs/doctor of the storage. Whoever can write to the storage
// can have put something else there, so nothing is reached by a path: the
// directory is opened link by link without following symbolic ones, has to
// belong to us, and in it there are only plain names, of regular files of ours.
type workDir struct {
	source, above, dir int    // the storage, .dmxfs, .dmxfs/doctor
	owner              uint32 // whom the storage lets our files belong to
	madeAbove          bool
}

const dirName = "doctor"

// plainName is what the names of the doctor's files are like.
var plainName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// sessionFile tells the sides that they look at the same directory.
const sessionFile = "session"

// makeWorkDir makes the directory; session is written in it.
func makeWorkDir(source int, session string) (d *workDir, err error) {
	made := false
	switch err := unix.Mkdirat(source, register.Name, 0o700); err {
	case nil:
		made = true
	case unix.EEXIST:
	default:
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	above, err := openDirAt(source, register.Name)
	if err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(above, dirName, 0o700); err != nil {
		unix.Close(above)
		if made {
			_ = unix.Unlinkat(source, register.Name, unix.AT_REMOVEDIR)
		}
		if err == unix.EEXIST {
			return nil, exitcode.With(exitcode.Busy, fmt.Errorf("%s/%s is there: another doctor examines this directory; if none does, remove it", register.Name, dirName))
		}
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	d, err = openWorkDir(source, above)
	if err != nil {
		_ = unix.Unlinkat(above, dirName, unix.AT_REMOVEDIR)
		unix.Close(above)
		return nil, err
	}
	d.madeAbove = made
	if err := d.put(sessionFile, session); err != nil {
		d.remove()
		d.close()
		return nil, fmt.Errorf("make a file: %w", err)
	}
	return d, nil
}

// findWorkDir is the directory that the other side has made. The error is
// ErrNotExist until it is seen here, and as the other side has filled it.
func findWorkDir(source int, session string) (*workDir, error) {
	above, err := openDirAt(source, register.Name)
	if err != nil {
		return nil, err
	}
	d, err := openWorkDir(source, above)
	if err != nil {
		unix.Close(above)
		return nil, err
	}
	if got, err := d.get(sessionFile); err != nil || got != session {
		d.close()
		if err == nil {
			err = fmt.Errorf("another doctor examines it: %w", fs.ErrNotExist)
		}
		return nil, err
	}
	return d, nil
}

// openWorkDir opens .dmxfs/doctor, and makes sure that both are ours.
func openWorkDir(source, above int) (*workDir, error) {
	dir, err := openDirAt(above, dirName)
	if err != nil {
		return nil, err
	}
	d := &workDir{source: source, above: above, dir: dir}
	if err := d.own(); err != nil {
		unix.Close(dir)
		return nil, err
	}
	return d, nil
}

func openDirAt(dir int, name string) (int, error) {
	fd := -1
	err := retryEINTR(func() (err error) {
		fd, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return -1, exitcode.With(exitcode.Refused, fmt.Errorf("%s is no directory: somebody else has put it there; remove it", name))
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	return fd, nil
}

// own finds out whom our files belong to, and that the directories do as well.
// Usually that is our user; but servers have their own ideas of root, and some
// clients show all files as those of one user.
func (d *workDir) own() error {
	var above, dir unix.Stat_t
	if err := errors.Join(unix.Fstat(d.above, &above), unix.Fstat(d.dir, &dir)); err != nil {
		return err
	}
	d.owner = uint32(os.Geteuid())
	if above.Uid != d.owner || dir.Uid != d.owner {
		name := "owner-" + strings.ToLower(rand.Text())
		fd, err := d.openat(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
		if err != nil {
			return fmt.Errorf("whom do new files belong to: %w", err)
		}
		var st unix.Stat_t
		err = errors.Join(unix.Fstat(fd, &st), unix.Unlinkat(d.dir, name, 0))
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("whom do new files belong to: %w", err)
		}
		d.owner = st.Uid
	}
	for _, x := range []struct {
		name string
		uid  uint32
	}{{register.Name, above.Uid}, {register.Name + "/" + dirName, dir.Uid}} {
		if x.uid != d.owner {
			return exitcode.With(exitcode.Refused, fmt.Errorf("%s belongs to user %d, and what is made there to user %d: the doctor has to run as the user of %s on both sides, and trusts nobody else's directories",
				x.name, x.uid, d.owner, register.Name))
		}
	}
	return nil
}

func (d *workDir) openat(name string, flags int) (fd int, err error) {
	err = retryEINTR(func() (err error) {
		fd, err = unix.Openat(d.dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0o600)
		return err
	})
	return fd, err
}

// check makes sure that a name is a plain one.
func check(names ...string) error {
	for _, n := range names {
		if len(n) > 100 || !plainName.MatchString(n) {
			return fmt.Errorf("%q is no name of a doctor's file", n)
		}
	}
	return nil
}

// open opens a file of ours. What is to be truncated is looked at first.
func (d *workDir) open(name string, flags int) (*os.File, error) {
	if err := check(name); err != nil {
		return nil, err
	}
	fd, err := d.openat(name, flags&^unix.O_TRUNC)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != d.owner || flags&unix.O_ACCMODE != unix.O_RDONLY && st.Nlink > 1) {
		err = fmt.Errorf("%q in %s/%s is not what the doctor has made: somebody else writes there", name, register.Name, dirName)
	}
	if err == nil && flags&unix.O_TRUNC != 0 && st.Size > 0 {
		err = retryEINTR(func() error { return unix.Ftruncate(fd, 0) })
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// put writes all of a file and syncs it; get reads it.
func (d *workDir) put(name, data string) error {
	f, err := d.open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	return writeSynced(f, data)
}

func (d *workDir) get(name string) (string, error) {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 200)
	n, err := f.ReadAt(b, 0)
	if n == 0 && err != nil && !isEOF(err) {
		return "", err
	}
	return string(b[:n]), nil
}

// list is the names in the directory, opened anew.
func (d *workDir) list() ([]string, error) {
	fd, err := openDirAt(d.above, dirName)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dirName)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// sweep removes the files that this side sees. What it has made itself it sees
// in any case.
func (d *workDir) sweep() error {
	names, err := d.list()
	for _, n := range names {
		if e := unix.Unlinkat(d.dir, n, 0); e != nil && e != unix.ENOENT && err == nil {
			err = e
		}
	}
	return err
}

// remove takes everything away that was made; the other side has swept.
func (d *workDir) remove() error {
	_ = d.sweep() // what is left keeps the directory
	var err error
	if e := unix.Unlinkat(d.above, dirName, unix.AT_REMOVEDIR); err == nil {
		err = e
	}
	if d.madeAbove {
		_ = unix.Unlinkat(d.source, register.Name, unix.AT_REMOVEDIR)
	}
	if err != nil {
		return fmt.Errorf("remove what the doctor has made: %w", err)
	}
	return nil
}

func (d *workDir) close() {
	unix.Close(d.above)
	unix.Close(d.dir)
}
