package fusefs

import (
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/recent"
)

// touches notes what the mount changes, so that this host can say later what it has done:
// see package recent.
type touches struct{ *base }

// touch is a name that a change is about, or the content of a file.
type touch struct {
	name  recent.Name
	kind  recent.Kind
	moves bool // by a rename
}

// touches are what c changes; of kind 0 there is none.
func (c *change) touches() (ts [2]touch) {
	switch {
	case c.makes != 0 || c.links != nil:
		ts[0] = touch{recent.NameOf(c.dir.key.ino, c.name), recent.Gains, false}
	case c.removes:
		ts[0] = touch{recent.NameOf(c.dir.key.ino, c.name), recent.Loses, false}
	case c.moves != "":
		ts[0] = touch{recent.NameOf(c.leave.key.ino, c.moves), recent.Loses, true}
		ts[1] = touch{recent.NameOf(c.dir.key.ino, c.name), recent.Gets, true}
		if c.exchange {
			ts[1].kind = recent.Swaps
		}
		if c.exchange || c.whiteout {
			ts[0].kind = recent.Swaps
		}
	case c.h != nil:
		ts[0] = touch{recent.Content(c.h.n.key.ino), recent.Alters, false}
	case c.files[0] != nil:
		ts[0] = touch{recent.Content(c.files[0].key.ino), recent.Alters, false}
	}
	return ts
}

// touched are the changes of a call that is under way.
type touched [2]recent.Under

func (t *touched) ids() [2]uint64 { return [2]uint64{t[0].ID, t[1].ID} }

// begin is called before the call of c.
func (ts touches) begin(c *change) (t touched) {
	m := ts.opts.Recent
	if m == nil {
		return t
	}
	for i, x := range c.touches() {
		if x.kind != 0 {
			t[i] = m.Begin(&x.name, x.kind)
		}
	}
	return t
}

// end is called when it has returned err.
func (ts touches) end(t *touched, c *change, err error) {
	m := ts.opts.Recent
	if m == nil {
		return
	}
	for i, x := range c.touches() {
		if x.kind != 0 {
			m.End(t[i], x.outcome(err))
		}
	}
}

// outcome is what has come of a change whose call has returned err.
func (x *touch) outcome(err error) recent.Outcome {
	switch {
	case x.kind == recent.Alters:
		return recent.Changed
	case err == nil && x.kind == recent.Loses && x.moves:
		return recent.Unknown // rename(2) of a file to another name of it does nothing
	case err == nil:
		return recent.Changed
	}
	switch err {
	case unix.EEXIST, unix.ENOENT, unix.ENOTEMPTY, unix.ENOTDIR, unix.EISDIR, unix.EACCES, unix.EPERM, unix.ENAMETOOLONG, unix.EINVAL,
		unix.EXDEV, unix.EROFS, unix.ENOSPC, unix.EDQUOT, unix.EMLINK, unix.ELOOP, unix.EBUSY:
		return recent.Unchanged
	}
	return recent.Unknown
}

// decide notes what has become of c, which a process before this one had begun as p says. done:
// that one had made it.
func (ts touches) decide(p *past, c *change, done bool) {
	m := ts.opts.Recent
	if m == nil {
		return
	}
	for i, x := range c.touches() {
		m.Decide(p.step.touched[i], done && !(x.moves && x.kind == recent.Loses))
	}
}

// wasMade reports whether it is noted that a process before this one has made c, as the step x.
func (ts touches) wasMade(c *change, x *step) bool {
	last := 0
	if c.moves != "" { // see outcome
		last = 1
	}
	return ts.opts.Recent.WasMade(x.touched[last])
}

// over notes that nobody will find out what has become of p, if it is not decided.
func (ts touches) over(p *past) {
	if m := ts.opts.Recent; m != nil && p.phase == phaseBegun {
		for _, id := range p.step.touched {
			m.Decide(id, false)
		}
	}
}

// adopt goes on with what the process before has noted.
func (ts touches) adopt(left []leftRequest) {
	m := ts.opts.Recent
	if m == nil {
		return
	}
	var ids []uint64
	for i := range left {
		if p := left[i].past; p != nil && p.phase == phaseBegun {
			ids = append(ids, p.step.touched[:]...)
		}
	}
	m.Adopt(ids)
}
