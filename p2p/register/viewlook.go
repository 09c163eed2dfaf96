package register

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/again"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// views are the views on the storage.
type views struct {
	*storage
	room *room

	sources sources                // of the links that are under way
	cluster atomic.Pointer[string] // ID of the cluster whose views they are
}

// ofCluster says whose views they are; others are damaged.
func (vs *views) ofCluster(id string) { vs.cluster.Store(&id) }

func (vs *views) clusterID() string {
	if id := vs.cluster.Load(); id != nil {
		return *id
	}
	return ""
}

// Look lists the views, reads the newest, and what newcomers ask, with one listing
// for all of it; see [Register]. That a view is missing is said only of one that would
// be seen if it were there, see seeLinked.
func (vs *views) Look(op member.LookOp) (member.Look, error) {
	var l member.Look
	dir, err := vs.open(viewsDir)
	if errors.Is(err, unix.ENOENT) {
		return l, nil // somebody removed it: no view is there, nor is the own one
	}
	if err != nil {
		return l, err
	}
	defer dir.Close()
	mail := mail{op: op}
	var top highest
	err = dir.names(func(name string) {
		if e, ok := member.ParseViewName(name); ok {
			top.add(e)
			l.Known = l.Known || e == op.Known
			return
		}
		mail.add(name)
	})
	if err != nil {
		return member.Look{}, err
	}
	if err := vs.readNewest(dir, op.Known, top, &l); err != nil {
		return member.Look{}, err
	}
	if err := vs.seeLinked(dir, op, &l); err != nil {
		return member.Look{}, err
	}
	l.Asks, l.Answers = mail.read(dir)
	vs.sources.removeTo(dir, l.Newest)
	return l, nil
}

// listAnew makes a client of the storage that keeps listings (sshfs) forget that of the views.
// Whoever begins changes names in it, and so does who links a view: it looks at what it has
// done. But one that goes on where another one was killed may find that its view is linked
// already, by which nothing is changed, and would see a listing of before that for as long as
// the client keeps it. So a file is made and removed; where there is no room for one, the times of
// the directory are set, which only its owner may on the server of some clients. Where neither
// is possible the listing is as old as [member.Member.Cache] allows, and no older.
func (vs *views) listAnew() {
	dir, err := vs.open(viewsDir)
	if err != nil {
		return // who looks is told
	}
	defer dir.Close()
	name := vs.tempName("listing")
	if f, err := dir.openFile(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600); err == nil {
		f.Close()
		dir.remove(name)
		return
	}
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	_ = again.Call(func() error { return unix.UtimesNanoAt(vs.root, viewsDir, now, unix.AT_SYMLINK_NOFOLLOW) })
}

// highest are the greatest epochs of a listing, the greatest first.
type highest []locks.Epoch

// maxStray is how many names of no views are passed over in one look.
const maxStray = 8

func (h *highest) add(e locks.Epoch) {
	i, _ := slices.BinarySearchFunc(*h, e, func(a, b locks.Epoch) int { return cmp.Compare(b, a) })
	if i <= maxStray {
		*h = slices.Insert((*h)[:min(len(*h), maxStray)], i, e)
	}
}

// reach is how far above the newest view the name of another can be, at most,
// to be taken for a view that was damaged. Views are made one above the other,
// and of a jump (member.ReasonRestored) the file can be read.
const reach = 1000

// readNewest reads the newest view; if it is damaged, the one before it, which
// tells at least who may know more. No other: names further back may have been
// pruned and linked again. A name that is out of reach of all views, with a
// file that is none, is nobody's view and is passed over.
func (vs *views) readNewest(dir directory, known locks.Epoch, top highest, l *member.Look) error {
	if len(top) == 0 {
		return nil
	}
	if l.Newest = top[0]; l.Newest <= known {
		return nil
	}
	v, err := vs.readView(dir, l.Newest)
	if err == nil {
		l.View = v
		return nil
	}
	if !isNone(err) && !isBad(err) {
		return err
	}
	if !errors.Is(err, member.ErrNewer) {
		for _, e := range top[1:] {
			below, berr := (*member.View)(nil), error(nil)
			if e > known {
				if below, berr = vs.readView(dir, e); berr != nil {
					continue
				}
			}
			if top[0] > e+reach {
				l.Newest, l.View, l.Stray = e, below, top[0]
				return nil
			}
			break
		}
	}
	if !isBad(err) {
		return err
	}
	l.Bad = err
	if before := l.Newest - 1; before > known {
		if v, err := vs.readView(dir, before); err == nil {
			l.View = v
		}
	}
	return nil
}

// isNone reports that a name is not that of a file.
func isNone(err error) bool { return errors.Is(err, errNotRegular) || errors.Is(err, unix.ELOOP) }

// isBad reports that a view's content is at fault, not the reading of it.
func isBad(err error) bool {
	return errors.Is(err, member.ErrUnreadable) || errors.Is(err, member.ErrNewer) || errors.Is(err, member.ErrForeign)
}

func (vs *views) readView(dir directory, e locks.Epoch) (*member.View, error) {
	b, err := dir.read(member.ViewName(e), member.MaxViewSize)
	if errors.Is(err, errTooLong) {
		return nil, fmt.Errorf("%w: %v", member.ErrUnreadable, err)
	}
	if err != nil {
		return nil, err
	}
	v, err := member.ParseView(b, vs.clusterID())
	if err == nil {
		vs.room.sawView(len(b))
	}
	if err == nil && v.Epoch != e {
		err = fmt.Errorf("%w: the file says it is view %d", member.ErrUnreadable, v.Epoch)
	}
	return v, err
}
