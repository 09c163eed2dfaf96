package register

import (
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/again"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// How old, by the clock of the storage, a file is before it is removed.
const (
	askAge    = time.Hour
	newAge    = 24 * time.Hour
	recordAge = 30 * 24 * time.Hour

	maxPrune = 512 // files of one call
)

// pruner removes what is of no use any more.
type pruner struct {
	*storage
	room *room
}

// Prune implements [Register]. The views that it removes are of no use to
// anybody; that a name comes free again harms nobody, see package p2p/member.
// Peer records that were not written for a month go too. Then the room for
// views is filled, as far as the storage has any to spare.
func (p *pruner) Prune(below locks.Epoch) error {
	dir, err := p.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	var newest locks.Epoch
	var views []locks.Epoch
	var others []string
	err = dir.names(func(name string) {
		if e, ok := member.ParseViewName(name); ok {
			newest = max(newest, e)
			if e < below && len(views) < maxPrune {
				views = append(views, e)
			}
			return
		}
		if (isTemp(name) || strings.HasPrefix(name, askPrefix) || strings.HasPrefix(name, answerPrefix)) && len(others) < maxPrune {
			others = append(others, name)
		}
	})
	for _, e := range views {
		if e != newest {
			err = errors.Join(err, dir.removeOwn(member.ViewName(e)))
		}
	}
	now, nerr := dir.now()
	if nerr != nil {
		return errors.Join(err, nerr)
	}
	for _, name := range others {
		age := askAge
		if isTemp(name) {
			age = newAge
		}
		err = errors.Join(err, dir.removeOld(name, now, age))
	}
	err = errors.Join(err, p.peerRecords(now), p.roomLeftovers(now))
	// Who was not allowed to was told so by Init; others can.
	if ferr := p.room.fill(); !errors.Is(ferr, ErrFull) && !errors.Is(ferr, ErrPermission) {
		err = errors.Join(err, ferr)
	}
	return err
}

func (p *pruner) peerRecords(now time.Time) error {
	return p.files(peersDir, now, func(name string) (time.Duration, bool) {
		if strings.HasPrefix(name, newPrefix) {
			return newAge, true
		}
		return recordAge, name != p.peer
	})
}

// roomLeftovers removes what filling the room has left behind.
func (p *pruner) roomLeftovers(now time.Time) error {
	err := p.files(roomDir, now, func(name string) (time.Duration, bool) {
		return newAge, strings.HasPrefix(name, newPrefix)
	})
	if errors.Is(err, unix.ENOENT) {
		return nil // no room was ever kept
	}
	return err
}

// files removes the files of a directory that age says may go, and when.
func (p *pruner) files(path string, now time.Time, age func(name string) (time.Duration, bool)) error {
	dir, err := p.open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	old := map[string]time.Duration{}
	err = dir.names(func(name string) {
		if a, ok := age(name); ok && len(old) < maxPrune {
			old[name] = a
		}
	})
	for name, a := range old {
		err = errors.Join(err, dir.removeOld(name, now, a))
	}
	return err
}

// now is the storage's own clock, as a file just written shows it:
// clocks of hosts may differ from it.
func (d directory) now() (time.Time, error) {
	name := d.storage.tempName("now")
	if err := d.writeTemp(name, nil, 0o600); err != nil {
		return time.Time{}, err
	}
	defer d.remove(name)
	st, err := d.stat(name)
	if err != nil {
		return time.Time{}, d.wrap("stat", name, err)
	}
	return time.Unix(st.Mtim.Unix()), nil
}

// removeOld removes a file that was last written longer than age before now.
// Another node may be at it too.
func (d directory) removeOld(name string, now time.Time, age time.Duration) error {
	st, err := d.stat(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return d.wrap("stat", name, err)
	}
	if now.Sub(time.Unix(st.Mtim.Unix())) <= age {
		return nil
	}
	return d.removeOwn(name)
}

// removeOwn removes a file, or leaves it there if the directory is sticky, as the
// shared one may be, and another user has made it: that one removes it.
func (d directory) removeOwn(name string) error {
	err := d.remove(name)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	var in unix.Stat_t
	if serr := again.Call(func() error { return unix.Fstat(d.fd(), &in) }); serr != nil || in.Mode&unix.S_ISVTX == 0 {
		return err
	}
	return nil
}
