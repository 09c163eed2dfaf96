package fusefs

import (
	"bytes"
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/recent"
)

// askTime is for how long what was done is found out, and the program waits meanwhile. It is
// longer than another host takes that has to be taken over itself.
var askTime = 5 * time.Second

// errUnsure: what others say leaves it open. It may be clear later, when what there is has
// changed.
var errUnsure = errors.New("other hosts have changed the same")

// find is findOut once. Without an error nothing more can be found out.
func (e *evidence) find(ctx context.Context, c *change, x *step, waits func()) (v recent.Verdict, err error) {
	w := &x.was
	if e.opts.Recent == nil || x.began == 0 {
		return v, nil
	}
	if c.reopen == nil && e.touches.wasMade(c, x) {
		return recent.Done, nil // whatever has happened since
	}
	if e.opts.Others == nil {
		return v, nil
	}
	if c.looksDone == nil {
		_, guess := e.certain(c, w)
		switch {
		case !guess && (e.storage.Remote || e.storage.ClientCache):
			// A server may carry out later what its client has sent before it was killed, and the
			// client may show what was: it is looked at once more when c is admitted.
			return v, nil
		case !guess:
			// It was not done, or undone since, whatever others do until c is admitted: that may look
			// as if it were done by then.
			return recent.NotDone, nil
		case w.known == 0:
			return v, nil
		}
	} else if w.known == 0 || w.size != 0 || !c.looksDone() {
		return v, nil
	}
	waits()
	switch {
	case c.looksDone != nil:
		return e.untouched(ctx, x, true, subject{c.files[0], ""})
	case c.data != nil:
		done, err := e.appended(c, w.size)
		if err != nil {
			return v, nil
		}
		if v, err = e.untouched(ctx, x, done, subject{c.h.n, ""}); err != nil {
			c.length = 0
		}
		return v, err
	case c.exchange || c.whiteout:
		return e.untouched(ctx, x, e.isExchanged(c, w), subject{c.leave, c.moves}, subject{c.dir, c.name})
	}
	return e.decide(ctx, c, x)
}

// written finds out once whether c was written since the step x, if nobody else has changed the
// file since: it was if it stands there.
//
// A client of the storage that keeps data does not matter, as it does to names: what this host has
// written it has, and it is made to look at what others have written before, as when a lock comes.
func (e *evidence) written(ctx context.Context, c *change, x *step) (v recent.Verdict, err error) {
	if e.opts.Others == nil || e.opts.Recent == nil || x.began == 0 || e.storage.KeepsNames {
		return v, nil
	}
	if err := e.client.lookAgain(c.h.n); err != nil {
		return v, nil // what is there cannot be known
	}
	fd, err := unix.Openat(e.fds, itoa(c.h.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return v, nil // it may not be read
	}
	defer closeFD(fd)
	b := make([]byte, len(c.writes))
	n, err := pread(fd, b, c.off)
	if err != nil {
		return v, nil
	}
	done := bytes.Equal(b[:n], c.writes)
	if !done && c.off/pageSize != (c.off+int64(len(b))-1)/pageSize {
		return v, nil // a kill may have come between two pages
	}
	p := subject{c.h.n, ""}
	hosts, err := e.askOf(ctx, x, p, e.isUnnumbered(p))
	if v, err = verdict(hosts, err, x, done); v == recent.Done {
		c.length = len(c.writes)
	}
	return v, err
}

// isUnnumbered reports whether hosts have no number in common for where p is.
func (e *evidence) isUnnumbered(p subject) bool {
	return e.tree.ids.paths || p.n.key.dev != e.tree.root.key.dev
}

// close gives up what was opened to find out whose it is.
func (e *evidence) close(c *change) {
	if c.fd != nil && *c.fd >= 0 {
		closeFD(*c.fd)
		*c.fd = -1
	}
}

// subject is a name in a directory; or, without one, the content of a file.
type subject struct {
	n    *node
	name string
}

// ask has all hosts tell what they have done with p since the step x.
func (e *evidence) ask(ctx context.Context, x *step, p subject) ([]recent.Host, error) {
	// What a client of the storage has kept was not so when the change was begun, perhaps,
	// and is not now.
	return e.askOf(ctx, x, p, e.storage.ClientCache || e.isUnnumbered(p))
}

// askOf is ask; here: what this host sees says nothing, if there is another one.
func (e *evidence) askOf(ctx context.Context, x *step, p subject, here bool) ([]recent.Host, error) {
	q := recent.Question{Version: recent.Version, Name: recent.Content(p.n.key.ino), Back: recent.Back(x.began, recent.Now()), Wide: e.opts.FoldsNames, Since: x.began}
	if p.name != "" {
		q.Name = recent.NameOf(p.n.key.ino, p.name)
	}
	hosts, err := e.opts.Others(ctx, &q, here)
	if err != nil {
		return nil, err
	}
	own, err := e.opts.Recent.Answer(ctx, &q, x.touched[:]...)
	if err != nil {
		return nil, err
	}
	return append(hosts, recent.Own(own)), nil
}

// untouched is the verdict done, if nobody has touched any of these places since x was begun.
func (e *evidence) untouched(ctx context.Context, x *step, done bool, all ...subject) (recent.Verdict, error) {
	v, err := recent.Unsure, error(nil)
	for _, p := range all {
		hosts, e := e.ask(ctx, x, p)
		if v, err = verdict(hosts, e, x, done); err != nil {
			break
		}
	}
	return v, err
}

// verdict is done, if hosts, of which err is the error, have not touched a place since x was begun.
func verdict(hosts []recent.Host, err error, x *step, done bool) (recent.Verdict, error) {
	if err == nil && !recent.Untouched(hosts, x.began) {
		err = recent.ErrNever // what has happened stays so
	}
	switch {
	case err != nil:
		return recent.Unsure, err
	case done:
		return recent.Done, nil
	}
	return recent.NotDone, nil
}

// isExchanged reports whether what had the two names of c has the other one's.
func (e *evidence) isExchanged(c *change, w *was) bool {
	from, _, err := e.lookNow(c.leave, c.moves)
	to, _, toErr := e.lookNow(c.dir, c.name)
	return err == nil && toErr == nil && w.a != (fileKey{}) && w.a != w.b && to.key == w.a && (from.key == w.b || c.whiteout && from.key != w.a)
}

// decide finds out whether c has made its name, or taken it away. What has to be open is opened
// when it is known to be made, and looked at once more, since it may be another one by then.
func (e *evidence) decide(ctx context.Context, c *change, x *step) (v recent.Verdict, err error) {
	v, err = e.decideBy(ctx, c, x, nil)
	if v == recent.Done && c.reopen != nil {
		v, err = e.decideBy(ctx, c, x, c.reopen)
	}
	return v, err
}

func (e *evidence) decideBy(ctx context.Context, c *change, x *step, open func() error) (recent.Verdict, error) {
	w := &x.was
	dir, name := c.names()
	p := recent.Pending{Kind: recent.Loses, Before: w.a != fileKey{}, LookedFrom: x.began, LookedTo: x.looked, Made: e.touches.wasMade(c, x)}
	if c.makes != 0 || c.links != nil {
		p.Kind = recent.Gains
	}
	p.FoundFrom = recent.Now()
	is, st, err := e.lookNow(dir, name)
	if err == nil && open != nil && is != (identityAt{}) {
		if err = open(); err == nil { // what is opened is what is found
			is, st, err = lookAtFD(*c.fd)
		}
	}
	p.FoundTo, p.There = recent.Now(), is != identityAt{}
	born := w.bsec != 0 && is.sec != 0 && (is.sec != w.bsec || is.nsec != w.bnsec)
	p.Other = p.Before && p.There && (is.key != w.a || born)
	switch {
	case err != nil:
		return recent.Unsure, err
	case p.Kind == recent.Gains && !p.There:
		return recent.Unsure, errUnsure // it is made again
	}
	hosts, err := e.ask(ctx, x, subject{dir, name})
	if err != nil {
		return recent.Unsure, err
	}
	v := recent.Decide(&p, hosts)
	switch {
	case v == recent.Unsure, v == recent.Done && p.Kind == recent.Gains && !e.mayBeOurs(c, w, is, &st):
		return recent.Unsure, errUnsure
	case v == recent.NotDone:
		e.close(c)
	}
	return v, nil
}

// mayBeOurs reports whether what was found may be what c makes.
func (e *evidence) mayBeOurs(c *change, w *was, is identityAt, st *unix.Statx_t) bool {
	if c.links != nil {
		return is.key == c.links.key
	}
	return e.isOurs(c, w, st)
}

func lookAtFD(fd int) (x identityAt, st unix.Statx_t, err error) {
	err = retryEINTR(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	})
	return identityOf(&st), st, err
}

func identityOf(st *unix.Statx_t) (x identityAt) {
	x.key = fileKey{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		x.sec, x.nsec = st.Btime.Sec, int64(st.Btime.Nsec)
	}
	return x
}
