package register

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A first start tries what dmxfs needs of the storage before anything is
// founded or joined there. Only then can be told apart what the storage cannot
// do and what it cannot do just now: clients of object stores say EIO to what
// they have no idea of, and so does any client whose server is away. What fails
// where a file has just been made, and fails again beside another one, is for
// good. But where there is a directory of views somebody's trial has succeeded:
// EIO is of the moment then, as of a server that is down and has a part of the names.

// ofTheMoment are errors that say nothing of what the storage can do.
var ofTheMoment = []unix.Errno{
	unix.ENOSPC, unix.EDQUOT, unix.ESTALE, unix.EBADFD, unix.ENOMEM, unix.EAGAIN, unix.EBUSY,
	unix.ETIMEDOUT, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENETDOWN, unix.ENETUNREACH, unix.ECONNREFUSED,
	unix.ECONNRESET, unix.ECONNABORTED, unix.ENOTCONN, unix.ESHUTDOWN,
}

// trials try what the storage can do.
type trials struct{ *storage }

// Trial makes a directory, a file and a hard link, as views need them, and
// takes them away again. The error says what this storage cannot do, or what
// failed just now. Kind is the type of the storage for people; doing is told
// each step before it is taken, so that who waits for the trial knows what
// hangs.
func (t *trials) Trial(kind string, doing func(step string)) (err error) {
	for range trialTries {
		if err = t.trial(kind, doing); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	return err
}

func (t *trials) trial(kind string, doing func(step string)) error {
	doing("making " + Name)
	dir, made, before, err := t.dir()
	if made {
		// Who founds a cluster in it meanwhile has put something there.
		defer func() { _ = unix.Unlinkat(t.root, Name, unix.AT_REMOVEDIR) }()
	}
	if err != nil {
		return t.cannot("make a directory", kind, err)
	}
	defer dir.Close()
	// The second file shows whether it is the link that fails, or everything.
	for last := range 2 {
		doing("making a file")
		from, to := t.tempName("trial"), t.tempName("trial")
		if err := dir.writeTemp(from, []byte(from), 0o600); err != nil {
			if before && isAway(err) {
				return t.away(err)
			}
			return t.cannot("write a file", kind, err)
		}
		doing("making a hard link")
		err = dir.link(from, to)
		// Also after an error: the link can be there, and its answer be lost.
		// What stays is removed by Prune, in a day.
		_ = dir.remove(to)
		_ = dir.remove(from)
		switch {
		case err == nil:
			return nil
		case isErrno(err, ofTheMoment):
			return t.wrap("link", dir.Name(), err)
		case before && last == 1 && isAway(err):
			return t.away(t.wrap("link", dir.Name(), err))
		case last == 1:
			return t.noLinks(" ("+kind+")", err)
		}
	}
	return nil
}

// dir opens a directory to try in: that of the views if there is one, from before,
// else the one around it, which it makes if need be.
func (t *trials) dir() (dir directory, made, before bool, err error) {
	if dir, err = t.open(viewsDir); !errors.Is(err, unix.ENOENT) {
		return dir, false, err == nil, err
	}
	if made, err = t.makeDir(Name); err != nil {
		return dir, made, false, err
	}
	dir, err = t.open(Name)
	return dir, made, false, err
}

// probe checks that the storage can do what views rest on: a second link of a
// name must fail, and must not change what the first one made.
func (t *trials) probe() error {
	dir, err := t.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	mode, err := t.fileMode()
	if err != nil {
		return err
	}
	one, two, name := t.tempName("probe"), t.tempName("probe"), t.tempName("probe")
	for _, f := range []string{one, two, name} {
		dir.remove(f)
		defer dir.remove(f)
	}
	for _, f := range []string{one, two} {
		if err := dir.writeTemp(f, []byte(f), mode); err != nil {
			return err
		}
	}
	if err := dir.link(one, name); err != nil {
		return t.noLink(err)
	}
	if err := dir.link(two, name); !errors.Is(err, unix.EEXIST) {
		if err == nil {
			return fmt.Errorf("%s: %w: a link of a name that exists succeeds; dmxfs decides by such a link which hosts go on, and would not be safe here", t.source, ErrNoLink)
		}
		return t.noLink(err)
	}
	got, err := dir.read(name, 1024)
	if err == nil && !bytes.Equal(got, []byte(one)) {
		err = fmt.Errorf("%s: %w: a linked file has another content than its source", t.source, ErrNoLink)
	}
	return err
}

// away explains an error of storage that has had all that is tried.
func (t *trials) away(err error) error {
	return fmt.Errorf("%w: dmxfs has worked on this storage before, so this may pass: see whether all of its servers are up, and the log of its client", err)
}

// cannot explains an error of the trial that no link has a part in.
func (t *trials) cannot(what, kind string, err error) error {
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
