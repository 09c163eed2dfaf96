package register

import (
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"dmxfs/locks"
	"dmxfs/p2p/member"
)

// How old, by the clock of the storage, a file is before it is removed.
const (
	askAge    = time.Hour
	newAge    = 24 * time.Hour
	recordAge = 30 * 24 * time.Hour

	maxPrune = 512 // files of one call
)

// Prune implements [Register]. The views that it removes are of no use to
// anybody; that a name comes free again harms nobody, see package p2p/member.
// Peer records that were not written for a month go too. Then the room for
// views is filled, as far as the storage has any to spare.
func (d *Dir) Prune(below locks.Epoch) error {
	dir, err := d.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	var newest locks.Epoch
	var views []locks.Epoch
	var others []string
	err = d.names(dir, func(name string) {
		if e, ok := member.ParseViewName(name); ok {
			newest = max(newest, e)
			if e < below && len(views) < maxPrune {
				views = append(views, e)
			}
			return
		}
		for _, prefix := range []string{askPrefix, answerPrefix, newPrefix} {
			if strings.HasPrefix(name, prefix) && len(others) < maxPrune {
				others = append(others, name)
			}
		}
	})
	for _, e := range views {
		if e != newest {
			err = errors.Join(err, d.removeOwn(dir, member.ViewName(e)))
		}
	}
	now, nerr := d.storageTime(dir)
	if nerr != nil {
		return errors.Join(err, nerr)
	}
	for _, name := range others {
		age := askAge
		if strings.HasPrefix(name, newPrefix) {
			age = newAge
		}
		err = errors.Join(err, d.removeOld(dir, name, now, age))
	}
	err = errors.Join(err, d.pruneRecords(now), d.pruneRoom(now))
	// Who was not allowed to was told so by Init; others can.
	if ferr := d.fillRoom(); !errors.Is(ferr, ErrFull) && !errors.Is(ferr, ErrPermission) {
		err = errors.Join(err, ferr)
	}
	return err
}

// storageTime is the storage's own clock, as a file just written shows it:
// clocks of hosts may differ from it.
func (d *Dir) storageTime(dir *os.File) (time.Time, error) {
	name := d.tempName("now")
	if err := d.writeTemp(dir, name, nil, 0o600); err != nil {
		return time.Time{}, err
	}
	defer d.remove(dir, name)
	st, err := statIn(dir, name)
	if err != nil {
		return time.Time{}, d.wrap("stat", dir.Name()+"/"+name, err)
	}
	return time.Unix(st.Mtim.Unix()), nil
}

func statIn(dir *os.File, name string) (st unix.Stat_t, err error) {
	err = ignoringEINTR(func() error { return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

// removeOld removes a file that was last written longer than age before now.
// Another node may be at it too.
func (d *Dir) removeOld(dir *os.File, name string, now time.Time, age time.Duration) error {
	st, err := statIn(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return d.wrap("stat", dir.Name()+"/"+name, err)
	}
	if now.Sub(time.Unix(st.Mtim.Unix())) <= age {
		return nil
	}
	return d.removeOwn(dir, name)
}

// removeOwn removes a file, or leaves it there if the directory is sticky, as the
// shared one may be, and another user has made it: that one removes it.
func (d *Dir) removeOwn(dir *os.File, name string) error {
	err := d.remove(dir, name)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	var in unix.Stat_t
	if serr := ignoringEINTR(func() error { return unix.Fstat(int(dir.Fd()), &in) }); serr != nil || in.Mode&unix.S_ISVTX == 0 {
		return err
	}
	return nil
}

func (d *Dir) pruneRecords(now time.Time) error {
	return d.pruneIn(peersDir, now, func(name string) (time.Duration, bool) {
		if strings.HasPrefix(name, newPrefix) {
			return newAge, true
		}
		return recordAge, name != d.peer
	})
}

// pruneRoom removes what filling the room has left behind.
func (d *Dir) pruneRoom(now time.Time) error {
	err := d.pruneIn(roomDir, now, func(name string) (time.Duration, bool) {
		return newAge, strings.HasPrefix(name, newPrefix)
	})
	if errors.Is(err, unix.ENOENT) {
		return nil // no room was ever kept
	}
	return err
}

// pruneIn removes the files of a directory that age says may go, and when.
func (d *Dir) pruneIn(path string, now time.Time, age func(name string) (time.Duration, bool)) error {
	dir, err := d.open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	old := map[string]time.Duration{}
	err = d.names(dir, func(name string) {
		if a, ok := age(name); ok && len(old) < maxPrune {
			old[name] = a
		}
	})
	for name, a := range old {
		err = errors.Join(err, d.removeOld(dir, name, now, a))
	}
	return err
}
