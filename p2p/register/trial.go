package register

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A first start tries what dmxfs needs of the storage before anything is
// founded or joined there. Only then can be told apart what the storage cannot
// do and what it cannot do just now: clients of object stores say EIO to what
// they have no idea of, and so does any client whose server is away. What fails
// where a file has just been made, and fails again beside another one, is for
// good.

// ofTheMoment are errors that say nothing of what the storage can do.
var ofTheMoment = []unix.Errno{
	unix.ENOSPC, unix.EDQUOT, unix.ESTALE, unix.ENOMEM, unix.EAGAIN, unix.EBUSY,
	unix.ETIMEDOUT, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENETDOWN, unix.ENETUNREACH, unix.ECONNREFUSED,
	unix.ECONNRESET, unix.ECONNABORTED, unix.ENOTCONN, unix.ESHUTDOWN,
}

// Trial makes a directory, a file and a hard link, as views need them, and
// takes them away again. The error says what this storage cannot do, or what
// failed just now. Kind is the type of the storage for people; doing is told
// each step before it is taken, so that who waits for the trial knows what
// hangs.
func (d *Dir) Trial(kind string, doing func(step string)) (err error) {
	for range trialTries {
		if err = d.trial(kind, doing); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	return err
}

func (d *Dir) trial(kind string, doing func(step string)) error {
	doing("making " + Name)
	dir, made, err := d.trialDir()
	if made {
		// Who founds a cluster in it meanwhile has put something there.
		defer func() { _ = unix.Unlinkat(d.root, Name, unix.AT_REMOVEDIR) }()
	}
	if err != nil {
		return d.cannot("make a directory", kind, err)
	}
	defer dir.Close()
	// The second file shows whether it is the link that fails, or everything.
	for last := range 2 {
		doing("making a file")
		from, to := d.tempName("trial"), d.tempName("trial")
		if err := d.writeTemp(dir, from, []byte(from), 0o600); err != nil {
			return d.cannot("write a file", kind, err)
		}
		doing("making a hard link")
		err = d.link(dir, from, to)
		// Also after an error: the link can be there, and its answer be lost.
		// What stays is removed by Prune, in a day.
		_ = d.remove(dir, to)
		_ = d.remove(dir, from)
		switch {
		case err == nil:
			return nil
		case isErrno(err, ofTheMoment):
			return d.wrap("link", dir.Name(), err)
		case last == 1:
			return d.noLinks(" ("+kind+")", err)
		}
	}
	return nil
}

// trialDir opens a directory to try in: that of the views if there is one, else
// the one around it, which it makes if need be.
func (d *Dir) trialDir() (dir *os.File, made bool, err error) {
	if dir, err = d.open(viewsDir); !errors.Is(err, unix.ENOENT) {
		return dir, false, err
	}
	if made, err = d.makeDir(Name); err != nil {
		return nil, made, err
	}
	dir, err = d.open(Name)
	return dir, made, err
}

// cannot explains an error of the trial that no link has a part in.
func (d *Dir) cannot(what, kind string, err error) error {
	if !errors.Is(err, unix.EIO) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	return &storageError{kind: ErrUnusable, err: err, text: fmt.Sprintf(
		"%v: this storage (%s) does not let dmxfs %s, which its membership needs; see whether other programs can, and the log of its client", err, kind, what)}
}

func isErrno(err error, list []unix.Errno) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
